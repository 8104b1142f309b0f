"""Reversals under faults: many clicks and processes, tool servers that lie and hang, recorders that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import redis

from takeback.auth import Caller
from takeback.errors import Problem
from takeback.messages.campaign import MemberRequest
from takeback.messages.entry import ResolutionRequest
from tests.integration.reversals_lab import (
    APPROVER,
    OWNER,
    Lab,
    another_recorder,
    eventually,
    lab_on,
    outcomes,
)

ROUNDS = int(os.environ.get("TAKEBACK_FAULT_ROUNDS", "1"))


async def _all_completed(lab: Lab) -> bool:
    return not await lab.recorder.pool.fetchval("select count(*) from reversals where status <> 'completed'")


@pytest.fixture
async def lab(postgres_url: str, nats_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Lab]:
    async with lab_on(postgres_url, nats_url, redis_url, tmp_path / "keys") as running:
        yield running


async def test_fifty_people_on_four_recorders_cause_one_compensation_and_the_others_hear_already_reverted(
    lab: Lab,
) -> None:
    """G9, S7, J17."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")
    people = [Caller(f"person{n}", "human") for n in range(50)]
    for person in people:
        await lab.recorder.campaigns.put_member(lab.campaign, OWNER, person.sub, MemberRequest(role="approver"))
    async with AsyncExitStack() as others:
        await asyncio.gather(*(others.enter_async_context(another_recorder(lab)) for _ in range(3)))
        plans = await asyncio.gather(*(lab.propose(entry) for _ in people))
        await asyncio.gather(*(lab.approve(plan, person) for plan, person in zip(plans, people, strict=True)))
        records = await asyncio.gather(*(lab.record(plan, 60) for plan in plans))
    heard = sorted(outcomes(record)[entry] for record in records)
    assert heard == ["already_reverted"] * 49 + ["reverted"]
    assert await lab.compensations("d1") == 1
    assert len(lab.office.undone) == 1
    assert await lab.doc("d1") == ("title", "body")


async def test_a_claim_of_success_that_does_not_show_is_unverified_and_the_next_click_sends_nothing(lab: Lab) -> None:
    """G8, S5."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")
    lab.office.mode = "lie"
    assert await lab.take_back(entry) == {entry: "unverified"}
    assert (await lab.entry(entry)).status == "reverting"
    lab.office.mode = "honest"
    assert await lab.take_back(entry) == {entry: "unverified"}
    assert len(lab.office.undone) == 1
    assert await lab.doc("d1") == ("wrong", "body")


async def test_an_outcome_outside_the_vocabulary_is_not_taken_for_success(lab: Lab) -> None:
    """S8."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")
    lab.office.mode = "gibberish"
    assert await lab.take_back(entry) == {entry: "unverified"}


async def test_a_person_settles_what_was_not_verified_with_another_receipt(lab: Lab) -> None:
    """J7, design: unverified stays until evidence or a person settles it."""
    for doc, word, status, last in (
        ("d1", "happened", "reverted", "reverted"),
        ("d2", "did-not-happen", "committed", "failed"),
    ):
        entry = await lab.call("edit", doc_id=doc, title="wrong")
        lab.office.mode = "lie"
        await lab.take_back(entry)
        lab.office.mode = "honest"
        reversal = (await lab.receipts(entry))[0]["reversal"]
        wanted = ResolutionRequest(outcome=word, reason="I looked")
        resolved = await lab.recorder.calls.doubts.resolve(reversal, OWNER, wanted)
        assert resolved["status"] == ("committed" if word == "happened" else "failed")
        assert (await lab.entry(entry)).status == status
        receipts = await lab.receipts(entry)
        assert [receipt["outcome"] for receipt in receipts] == ["unverified", last]
        assert "olga (owner): I looked" in receipts[1]["detail"]
        with pytest.raises(Problem) as refused:
            await lab.recorder.calls.doubts.resolve(reversal, OWNER, wanted)
        assert refused.value.status == 409
    assert await lab.take_back(entry) == {entry: "reverted"}


async def test_an_undo_whose_reply_is_lost_is_in_doubt_then_settled_and_never_done_twice(lab: Lab) -> None:
    """G9: found by the record standing exactly as before."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")
    lab.office.mode = "lose"
    with lab.impatient():
        assert await lab.take_back(entry) == {entry: "reverted"}
    assert await lab.compensations("d1") == 1
    assert await lab.doc("d1") == ("title", "body")


async def test_a_slow_undo_is_in_doubt_while_it_runs_and_settled_under_its_own_key_when_it_ends(lab: Lab) -> None:
    """G9."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")
    lab.office.mode = "slow"
    with lab.impatient():
        assert await lab.take_back(entry) == {entry: "in_doubt"}
    assert (await lab.entry(entry)).status == "reverting"
    lab.office.mode = "honest"
    lab.office.go_on.set()

    async def settled() -> bool:
        return (await lab.entry(entry)).status == "reverted"

    await eventually(settled)
    assert {undo["idempotencyKey"] for undo in lab.office.undone} == {(await lab.entry(entry)).reverted_by}
    assert await lab.compensations("d1") == 1
    assert [receipt["outcome"] for receipt in await lab.receipts(entry)] == ["in_doubt", "reverted"]


async def test_an_undo_that_dies_in_the_tool_server_is_gone_on_with_under_its_key(lab: Lab) -> None:
    """G9."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")
    lab.office.mode = "die"
    assert await lab.take_back(entry) == {entry: "in_doubt"}
    lab.office.mode = "honest"

    async def settled() -> bool:
        return (await lab.entry(entry)).status == "reverted"

    await eventually(settled)
    assert await lab.compensations("d1") == 1


async def test_a_tool_server_that_is_away_is_said_and_the_entry_stays_as_it_was(lab: Lab) -> None:
    """G8."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")
    plan = await lab.propose(entry)
    await lab.service.close()
    await lab.approve(plan)
    assert outcomes(await lab.record(plan)) == {entry: "failed"}
    assert (await lab.entry(entry)).status == "committed"


async def test_an_answer_that_the_journal_cannot_keep_is_worth_what_the_record_shows(lab: Lab) -> None:
    """S8."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")
    lab.office.mode = "unkeepable"
    assert await lab.take_back(entry) == {entry: "reverted"}
    assert await lab.doc("d1") == ("title", "body")


async def test_a_redis_that_comes_back_empty_costs_a_retry_and_no_second_compensation(lab: Lab) -> None:
    """J19: the lock orders, the journal decides."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")

    async def emptied() -> None:
        lab.office.during = None
        with redis.Redis.from_url(lab.environ["TAKEBACK_REDIS_URL"]) as client:
            client.flushall()
        other = await lab.propose(entry)
        await lab.approve(other, APPROVER)

    lab.office.during = emptied
    assert await lab.take_back(entry) == {entry: "reverted"}
    assert await lab.compensations("d1") == 1
    await eventually(lambda: _all_completed(lab))
    assert len(lab.office.undone) == 1


async def test_a_recorder_that_stops_finishes_its_step_and_leaves_the_rest_to_another(lab: Lab) -> None:
    """J17."""
    first = await lab.call("edit", doc_id="d1", title="a")
    second = await lab.call("edit", doc_id="d2", title="b")
    runner = lab.recorder.reversing.runner
    stopping: list[asyncio.Task[None]] = []

    async def stop() -> None:
        lab.office.during = None
        stopping.append(asyncio.create_task(runner.stop()))

    lab.office.during = stop
    plan = await lab.propose(second, first)
    await lab.approve(plan)
    await eventually(lambda: _stopped(stopping))
    assert [(await lab.entry(id_)).status for id_ in (second, first)] == ["reverted", "committed"]
    await runner.start()
    assert outcomes(await lab.record(plan)) == {second: "reverted", first: "reverted"}


async def _stopped(stopping: list[asyncio.Task[None]]) -> bool:
    return bool(stopping) and stopping[0].done()


@pytest.mark.faults
@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("where", ["at-claim", "in-the-tool"])
async def test_a_recorder_killed_in_a_reversal_leaves_it_to_another_and_it_is_done_once(
    postgres_url: str, nats_url: str, redis_url: str, tmp_path: Path, where: str, round_: int
) -> None:
    """G9, J17: SIGKILL of a separate process at the claim, and when the tool server has the request for the undo."""
    settings = {"TAKEBACK_FORWARD_DEADLINE_SECONDS": "1.5"}
    async with lab_on(postgres_url, nats_url, redis_url, tmp_path / "keys", **settings) as lab:
        entry = await lab.call("edit", doc_id="d1", title="wrong")
        plan = await lab.propose(entry)
        runner = lab.recorder.reversing.runner
        await runner.stop()
        armed = {"TAKEBACK_FAILPOINT": where} if where == "at-claim" else {}
        async with another_recorder(lab, **armed) as doomed:

            async def kill() -> None:
                lab.office.during = None
                doomed.kill()

            lab.office.during = kill if where == "in-the-tool" else None
            await lab.approve(plan)
            assert await asyncio.wait_for(doomed.ended(), 20) == -signal.SIGKILL
        stored = await lab.stored(entry)
        assert stored.status == "reverting"
        await runner.start()
        assert outcomes(await lab.record(plan, 30)) == {entry: "reverted"}
        assert await lab.compensations("d1") == 1
        assert len({undo["idempotencyKey"] for undo in lab.office.undone}) == 1
        assert await lab.doc("d1") == ("title", "body")
        assert len(await lab.receipts(entry)) == 1
