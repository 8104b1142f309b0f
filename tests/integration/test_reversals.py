"""Reversals in the recorder, on real PostgreSQL, NATS, Valkey and an SDK tool server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from recorder.journal.dsse import public_key
from recorder.reversing.reversal import Reversal
from recorder.reversing.signing import not_as_signed
from takeback.errors import Problem
from tests.integration.reversals_lab import APPROVER, OWNER, PALADIN, ROGUE, Lab, lab_on, outcomes
from tests.waiting import eventually


@pytest.fixture
async def lab(postgres_url: str, nats_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Lab]:
    async with lab_on(postgres_url, nats_url, redis_url, tmp_path / "keys") as running:
        yield running


async def test_a_step_is_taken_back_verified_and_receipted(lab: Lab, tmp_path: Path) -> None:
    """G8, G10."""
    entry = await lab.call("edit", doc_id="d1", title="wrong")
    plan = await lab.propose(entry)
    await lab.approve(plan, category="misread")
    record = await lab.record(plan)
    assert await lab.doc("d1") == ("title", "body")
    taken = await lab.entry(entry)
    assert (taken.status, taken.reverted_by_person, taken.revert_reason) == ("reverted", "olga", "it was a mistake")
    reversal = await lab.entry(taken.reverted_by or "")
    assert (reversal.kind, reversal.status, reversal.reverts, reversal.run) == ("reversal", "committed", entry, lab.run)
    assert reversal.undo.kind == "compensate"
    (receipt,) = record["receipts"]
    assert (receipt["outcome"], receipt["expectedVersion"], receipt["versionBefore"], receipt["versionAfter"]) == (
        "reverted", "2", "2", "3",
    )  # fmt: skip
    assert (receipt["approvedBy"], receipt["authority"]) == ("olga", "owner")
    assert receipt["sideEffects"] == ["the readers are told"]
    assert record["foreseenSideEffects"] == [{"entry": entry, "text": "the readers are told"}]
    assert record["suggestions"][0]["text"] == "tell the forecast"
    key = public_key(tmp_path / "keys" / "signing_public.pem")
    assert not_as_signed(record, key) == []
    assert not_as_signed({**record, "reason": "another"}, key) == ["reason"]
    assert not await lab.recorder.pool.fetchval("select count(*) from holds")


async def test_a_created_record_is_gone_and_a_deleted_one_is_there_again_after_their_reversal(lab: Lab) -> None:
    """G8."""
    made = await lab.call("create", doc_id="new", title="draft")
    gone = await lab.call("remove", doc_id="d2")
    assert await lab.take_back(gone, made) == {made: "reverted", gone: "reverted"}
    assert await lab.doc("new") is None
    assert await lab.doc("d2") == ("title", "body")


async def test_earlier_edits_of_the_same_chain_are_no_conflict(lab: Lab) -> None:
    """S11: each step expects the version that the step before it left."""
    edits = [await lab.call("edit", doc_id="d1", title=f"title {n}") for n in range(3)]
    assert await lab.take_back(*reversed(edits)) == dict.fromkeys(edits, "reverted")
    assert await lab.doc("d1") == ("title", "body")


async def test_what_a_teammate_changed_since_is_not_overwritten_and_what_is_independent_goes_on(lab: Lab) -> None:
    """G8, S15."""
    entries = [await lab.call("edit", doc_id=f"d{n}", title="agent") for n in range(1, 5)]
    await lab.teammate("d2", body="by hand")
    found = await lab.take_back(*reversed(entries))
    assert found == {entries[0]: "reverted", entries[1]: "conflict", entries[2]: "reverted", entries[3]: "reverted"}
    assert await lab.doc("d2") == ("agent", "by hand")
    assert (await lab.entry(entries[1])).status == "committed"
    assert await lab.doc("d3") == ("title", "body")


async def test_a_plan_that_the_world_has_moved_past_is_refused_whole(lab: Lab) -> None:
    """G6."""
    first, second = await lab.call("edit", doc_id="d1", title="a"), await lab.call("edit", doc_id="d2", title="b")
    plan = await lab.propose(second, first)
    await lab.teammate("d2", body="later")
    with pytest.raises(Problem) as refused:
        await lab.approve(plan)
    assert refused.value.slug == "plan-stale"
    assert (await lab.entry(first)).status == "committed"
    assert not await lab.recorder.pool.fetchval("select count(*) from records where type = 'plan.decided'")


async def test_an_override_goes_over_the_version_that_was_seen_and_over_no_newer_one(lab: Lab) -> None:
    """G5, G8."""
    entry = await lab.call("edit", doc_id="d1", title="agent")
    await lab.teammate("d1", title="by hand")

    async def newer() -> None:
        lab.office.during = None
        await lab.teammate("d1", title="newer")

    lab.office.during = newer
    assert await lab.take_back(entry, override=[entry]) == {entry: "conflict"}
    assert await lab.doc("d1") == ("newer", "body")
    assert lab.office.undone[-1]["force"] is True
    assert await lab.take_back(entry, override=[entry]) == {entry: "reverted"}
    assert await lab.doc("d1") == ("title", "body")


async def test_single_fields_are_taken_back_and_what_a_person_typed_since_stays(lab: Lab) -> None:
    """S3, G10: a partial undo is its own change set."""
    entry = await lab.call("edit", doc_id="d1", title="agent", body="agent")
    await lab.teammate("d1", body="typed since")
    plan = await lab.propose(entry)
    await lab.approve(plan, fields={entry: ["title"]})
    (receipt,) = (await lab.record(plan))["receipts"]
    assert (receipt["outcome"], receipt["fields"]) == ("reverted", ["title"])
    assert await lab.doc("d1") == ("title", "typed since")
    assert (await lab.entry(entry)).status == "reverted"


async def test_a_step_is_blocked_by_what_builds_on_it_and_could_not_be_taken_back(lab: Lab) -> None:
    """S4: the later edit conflicts, so the earlier one is left as it is, and the receipt says by what."""
    first = await lab.call("edit", doc_id="d1", title="first")
    second = await lab.call("edit", doc_id="d2", body=f"after {first}")
    await lab.teammate("d2", title="by hand")
    plan = await lab.propose(second, first, because={second: [first]})
    await lab.approve(plan)
    record = await lab.record(plan)
    assert outcomes(record) == {second: "conflict", first: "blocked"}
    assert second in record["receipts"][1]["detail"]
    assert await lab.doc("d1") == ("first", "body")


async def test_a_step_left_out_blocks_nothing(lab: Lab) -> None:
    """G5."""
    first = await lab.call("edit", doc_id="d1", title="first")
    second = await lab.call("edit", doc_id="d2", title="second")
    plan = await lab.propose(second, first, because={second: [first]})
    await lab.approve(plan, leaveOut=[second])
    record = await lab.record(plan)
    assert outcomes(record) == {second: "left_out", first: "reverted"}
    assert record["leftOut"] == [second]


async def test_a_link_to_a_broken_entry_blocks_only_where_it_is_known(lab: Lab) -> None:
    """J11."""
    broken = await lab.call("edit", doc_id="d1", title="x")
    entry = await lab.call("edit", doc_id="d2", title="y")
    for source, outcome in (("declared", "blocked"), ("default", "reverted")):
        plan = await lab.propose(entry, because={entry: [broken]}, unresolved=[broken], source=source)
        await lab.approve(plan)
        record = await lab.record(plan)
        assert outcomes(record) == {entry: outcome}
    assert broken in (await lab.receipts(entry))[0]["detail"]


async def test_a_second_plan_starts_from_what_is_true_now(lab: Lab) -> None:
    """S6."""
    first = await lab.call("edit", doc_id="d1", title="one")
    second = await lab.call("edit", doc_id="d1", body="two")
    assert await lab.take_back(second) == {second: "reverted"}
    left = (await lab.entry((await lab.entry(second)).reverted_by or "")).effect
    assert left is not None
    plan = await lab.propose(second, first, steps={first: {"expects": second, "conflict": None}})
    await lab.approve(plan)
    assert outcomes(await lab.record(plan)) == {second: "already_reverted", first: "reverted"}
    assert await lab.doc("d1") == ("title", "body")


async def test_taking_back_a_reversal_makes_the_entry_committed_again_and_it_can_be_taken_back_once_more(
    lab: Lab,
) -> None:
    """S12."""
    entry = await lab.call("remove", doc_id="d1")
    assert await lab.take_back(entry) == {entry: "reverted"}
    reversal = (await lab.entry(entry)).reverted_by or ""
    assert await lab.take_back(reversal) == {reversal: "reverted"}
    assert await lab.doc("d1") is None
    again = await lab.entry(entry)
    assert (again.status, again.reverted_by, again.undo.kind) == ("committed", None, "compensate")
    assert (await lab.entry(reversal)).status == "reverted"
    assert await lab.take_back(entry) == {entry: "reverted"}
    assert await lab.doc("d1") == ("title", "body")


async def test_a_record_that_is_made_again_under_another_name_is_known_by_it_in_later_plans(lab: Lab) -> None:
    """G8: ids that change are mapped for later steps and plans."""
    await lab.tables.execute("insert into docs (id, title, body) values ('tmp', 'title', 'body')")
    edited = await lab.call("edit", doc_id="tmp", title="agent")
    removed = await lab.call("remove", doc_id="tmp")
    assert await lab.take_back(removed) == {removed: "reverted"}
    assert await lab.doc("tmpx") == ("agent", "body")
    stored = await lab.stored((await lab.entry(removed)).reverted_by or "")
    assert stored.body["remaps"] == [{"from": "office://doc/tmp", "to": "office://doc/tmpx"}]
    again = await lab.entry(stored.id)
    assert again.effect is not None
    assert again.effect.resource == "office://doc/tmpx"
    assert edited


async def test_whoever_lost_the_authority_in_between_takes_nothing_back(lab: Lab) -> None:
    """G7: the role is looked at again when the step runs."""
    first = await lab.call("edit", doc_id="d1", title="a")
    second = await lab.call("edit", doc_id="d2", title="b")
    plan = await lab.propose(second, first)

    async def demoted() -> None:
        lab.office.during = None
        await lab.recorder.campaigns.remove_member(lab.campaign, OWNER, APPROVER.sub)

    lab.office.during = demoted
    await lab.approve(plan, APPROVER)
    assert outcomes(await lab.record(plan)) == {second: "reverted", first: "authority_lost"}
    assert await lab.doc("d1") == ("a", "body")
    assert await lab.security() == ["take this back"]


async def test_the_paladin_takes_back_their_own_turn_and_not_the_rogues(lab: Lab) -> None:
    """G7, S14: 403 and a security log entry; an agent decides nothing; undoAuthority outranks the principal."""
    own = await lab.call("edit", doc_id="d1", title="paladin")
    others = await lab.call("edit", doc_id="d2", title="rogue", principal=ROGUE.sub)
    named = await lab.call("publish", doc_id="d3")
    plan = await lab.propose(others)
    with pytest.raises(Problem) as refused:
        await lab.approve(plan, PALADIN)
    assert (refused.value.status, refused.value.slug) == (403, "not-authorised")
    with pytest.raises(Problem) as refused:
        await lab.approve(await lab.propose(named), PALADIN)
    assert refused.value.slug == "not-authorised"
    with pytest.raises(Problem) as refused:
        await lab.approve(plan, type(PALADIN)("bot", "agent"))
    assert refused.value.slug == "human-required"
    assert await lab.security() == ["take this back", "take this back", "decide a plan"]
    with pytest.raises(Problem) as refused:
        await lab.approve(plan, PALADIN, leaveOut=[others])
    assert refused.value.slug == "not-authorised"
    mixed = await lab.propose(others, own)
    await lab.approve(mixed, PALADIN, leaveOut=[others])
    record = await lab.record(mixed)
    assert outcomes(record) == {others: "left_out", own: "reverted"}
    assert record["receipts"][1]["authority"] == "principal"
    assert await lab.take_back(named, by=APPROVER) == {named: "reverted"}


async def test_a_window_that_has_closed_is_said_and_nothing_is_sent(lab: Lab) -> None:
    """G8."""
    entry = await lab.call("blink", doc_id="d1")
    plan = await lab.propose(entry)

    async def closed() -> bool:
        undo_by = (await lab.entry(entry)).undo.undo_by
        return undo_by is not None and await lab.recorder.reader.now() > undo_by

    await eventually(closed)
    await lab.approve(plan)
    record = await lab.record(plan)
    assert outcomes(record) == {entry: "failed"}
    assert "window closed" in record["receipts"][0]["detail"]
    assert lab.office.undone == []


async def test_a_step_that_needs_a_person_runs_only_when_picked(lab: Lab) -> None:
    """J10, G4."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    for override, outcome in (([], "blocked"), ([entry], "reverted")):
        plan = await lab.propose(entry, steps={entry: {"needsPerson": "no_version"}})
        await lab.approve(plan, override=override)
        assert outcomes(await lab.record(plan)) == {entry: outcome}


async def test_the_same_decision_again_is_answered_like_the_first_and_another_one_is_refused(lab: Lab) -> None:
    """G6, G9."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    plan = await lab.propose(entry)
    with pytest.raises(Problem) as refused:
        await lab.approve(plan, digest="another")
    assert refused.value.slug == "digest-mismatch"
    first = await lab.approve(plan)
    assert await lab.approve(plan) == first
    with pytest.raises(Problem) as refused:
        await lab.approve(plan, decision="reject")
    assert (refused.value.status, refused.value.slug) == (409, "already-decided")
    await lab.record(plan)
    assert await lab.compensations("d1") == 1


async def test_a_rejected_plan_changes_nothing_and_stays_rejected(lab: Lab) -> None:
    """G6."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    plan = await lab.propose(entry)
    await lab.approve(plan, decision="reject")
    with pytest.raises(Problem) as refused:
        await lab.approve(plan)
    assert refused.value.slug == "already-decided"
    assert await lab.doc("d1") == ("x", "body")


async def test_writes_to_the_plans_records_are_refused_while_the_reversal_runs(lab: Lab) -> None:
    """Design, And back: the records are held still, and let go at the end."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    plan = await lab.propose(entry)
    seen: list[str] = []

    async def meanwhile() -> None:
        lab.office.during = None
        seen.extend(row["resource"] for row in await lab.recorder.pool.fetch("select resource from holds"))

    lab.office.during = meanwhile
    await lab.approve(plan)
    await lab.record(plan)
    assert seen == ["office://doc/d1"]
    assert await lab.call("edit", doc_id="d1", title="again")


async def test_a_plan_one_of_whose_records_is_held_waits_and_holds_none_of_them(lab: Lab) -> None:
    """Design, And back: all of its records or none; it runs once they are free."""
    entries = [await lab.call("edit", doc_id=f"d{n}", title="x") for n in (1, 2)]
    plan = await lab.propose(*entries)
    pool = lab.recorder.pool
    await pool.execute("insert into holds values ($1, 'office://doc/d2', 'pln_other')", lab.campaign)
    await lab.approve(plan)
    assert await pool.fetchval("select status from reversals where id = $1", plan) == "queued"
    assert not await pool.fetchval("select count(*) from holds where reversal = $1", plan)
    await pool.execute("delete from holds")
    lab.recorder.reversing.runner.wake()
    assert set(outcomes(await lab.record(plan)).values()) == {"reverted"}


async def test_an_approved_plan_is_taken_in_the_commit_of_its_decision(lab: Lab) -> None:
    """G9: with its records held and under a lease, as if it had been taken from the queue."""
    plan = await lab.propose(await lab.call("edit", doc_id="d1", title="x"))
    taken: list[bool] = []

    async def meanwhile() -> None:
        lab.office.during = None
        row = await lab.recorder.pool.fetchrow(
            "select r.status, r.claimed_until > now() as leased, h.xmin = d.xmin as at_once from reversals r "
            "join holds h on h.reversal = r.id "  # a lease that was renewed is another version of the row
            "join records d on d.stream = r.campaign and d.type = 'plan.decided' where r.id = $1",
            plan,
        )
        taken.extend([row["status"] == "running", row["leased"], row["at_once"]])

    lab.office.during = meanwhile
    await lab.approve(plan)
    await lab.record(plan)
    assert taken == [True, True, True]


async def test_a_lease_begins_when_the_plan_is_taken_however_long_its_decision_waited(lab: Lab) -> None:
    """G9: else it might lapse with the commit, and two recorders would run the reversal."""
    plan = await lab.propose(await lab.call("edit", doc_id="d1", title="x"))
    pool, queue = lab.recorder.pool, lab.recorder.reversing.runner._queue
    leased_until: list[datetime] = []

    async def meanwhile() -> None:
        lab.office.during = None
        leased_until.append(await pool.fetchval("select claimed_until from reversals where id = $1", plan))

    async def waits() -> bool:
        return bool(
            await pool.fetchval(
                "select exists (select from pg_stat_activity where datname = current_database() "
                "and wait_event_type = 'Lock' and clock_timestamp() - xact_start > '0.3 s')"
            )
        )

    lab.office.during = meanwhile
    async with pool.acquire() as other, other.transaction():
        await other.execute("select from streams where stream = $1 for update", lab.campaign)
        deciding = asyncio.create_task(lab.approve(plan))
        await eventually(waits)
        let_go = await other.fetchval("select clock_timestamp()")
    await deciding
    await lab.record(plan)
    assert leased_until[0] >= let_go + timedelta(seconds=queue.lease_seconds)


async def test_a_reversal_that_another_recorder_ran_while_it_waited_for_room_is_not_run_twice(lab: Lab) -> None:
    """G9, G10: one compensation, one receipt for each step, one Reversal Record."""
    entries = [await lab.call("edit", doc_id=f"d{n}", title="x") for n in (1, 2)]
    plan = await lab.propose(*entries)
    runner = lab.recorder.reversing.runner
    late: list[Reversal] = []
    begin, runner.begin = runner.begin, late.append  # type: ignore[method-assign]
    await lab.approve(plan)
    await runner._queue.give_back(plan)  # as if its lease had lapsed
    runner.wake()
    record = await lab.record(plan)
    begin(late[0])
    await asyncio.gather(*runner._running)
    assert outcomes(record) == dict.fromkeys(entries, "reverted")
    assert [await lab.compensations(f"d{n}") for n in (1, 2)] == [1, 1]
    assert [len(await lab.receipts(entry)) for entry in entries] == [1, 1]
    assert await lab.recorder.pool.fetchval("select count(*) from records where type = 'reversal.completed'") == 1
    assert not await lab.recorder.pool.fetchval("select count(*) from holds")
