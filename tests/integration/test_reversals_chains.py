"""Reversals that hang together: of reversals, of several records, over names that change, beside writes that go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recorder.journal.fsck import fsck
from takeback import json
from takeback.errors import Problem
from takeback.messages.campaign import AgentRequest, CampaignRequest, NatsServer, RunRequest
from tests.integration.reversals_lab import AGENT, OWNER, Lab, lab_on, outcomes


@pytest.fixture
async def lab(postgres_url: str, nats_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Lab]:
    async with lab_on(postgres_url, nats_url, redis_url, tmp_path / "keys") as running:
        yield running


async def test_taking_back_the_taking_back_of_a_reversal_leaves_the_entry_taken_back(lab: Lab) -> None:
    """S12, turn by turn; the journal and its projections still say the same."""
    entry = await lab.call("edit", doc_id="d1", title="agent")
    line = [entry]
    for turn in range(1, 5):
        assert await lab.take_back(line[-1]) == {line[-1]: "reverted"}
        line.append((await lab.entry(line[-1])).reverted_by or "")
        taken_back = turn % 2 == 1
        assert await lab.doc("d1") == (("title" if taken_back else "agent"), "body")
        for depth, id_ in enumerate(line):
            expected = "reverted" if (turn - depth) % 2 == 1 else "committed"
            assert (await lab.entry(id_)).status == expected, (turn, depth)
    assert [difference async for difference in fsck(lab.recorder.pool)] == []


async def test_a_reversal_whose_effect_was_taken_back_otherwise_is_not_taken_back_again(lab: Lab) -> None:
    """G9, S12: there is nothing left for it to do."""
    entry = await lab.call("edit", doc_id="d1", title="agent")
    await lab.take_back(entry)
    first = (await lab.entry(entry)).reverted_by or ""
    plan = await lab.propose(first)
    await lab.take_back(first)
    await lab.take_back(entry)
    await lab.approve(plan)
    assert outcomes(await lab.record(plan)) == {first: "already_reverted"}
    assert await lab.doc("d1") == ("title", "body")


async def test_an_entry_that_changed_two_records_has_a_part_for_each(lab: Lab) -> None:
    """G10."""
    entry = await lab.call("move", doc_id="d1", page_id="p1")
    plan = await lab.propose(entry)
    await lab.approve(plan)
    (receipt,) = (await lab.record(plan))["receipts"]
    assert receipt["outcome"] == "reverted"
    assert [(part["resource"], part["outcome"], part["versionAfter"]) for part in receipt["parts"]] == [
        ("office://doc/d1", "reverted", "3"),
        ("office://page/p1", "reverted", "3"),
    ]
    assert await lab.tables.fetchval("select doc from pages where id = 'p1'") == "nowhere"


async def test_a_conflict_on_one_of_two_records_leaves_both_alone(lab: Lab) -> None:
    """G8."""
    entry = await lab.call("move", doc_id="d1", page_id="p1")
    await lab.tables.execute("update pages set doc = 'd9', rev = rev + 1 where id = 'p1'")
    plan = await lab.propose(entry, steps={entry: {"conflict": {"fields": []}}})
    await lab.approve(plan)
    (receipt,) = (await lab.record(plan))["receipts"]
    assert [part["outcome"] for part in receipt["parts"]] == ["blocked", "conflict"]
    assert await lab.doc("d1") == ("moved to", "body")
    assert lab.office.undone == []


async def test_an_override_goes_over_the_version_of_each_record_that_was_seen_and_over_no_newer_one(lab: Lab) -> None:
    """G5, G8: also over a further record of the call."""
    entry = await lab.call("move", doc_id="d1", page_id="p1")
    await lab.tables.execute("update pages set doc = 'd9', rev = rev + 1 where id = 'p1'")
    stale = await lab.propose(entry, steps={entry: {"conflict": {"fields": []}}})
    await lab.approve(stale, override=[entry])
    assert outcomes(await lab.record(stale)) == {entry: "reverted"}
    assert await lab.tables.fetchval("select doc from pages where id = 'p1'") == "nowhere"

    again = await lab.call("move", doc_id="d2", page_id="p1")
    await lab.tables.execute("update pages set doc = 'd8', rev = rev + 1 where id = 'p1'")
    seen = await lab.propose(again, steps={again: {"conflict": {"fields": []}}})

    async def somebody_is_faster() -> None:
        await lab.tables.execute("update pages set doc = 'd7', rev = rev + 1 where id = 'p1'")

    lab.office.during = somebody_is_faster
    await lab.approve(seen, override=[again])
    assert outcomes(await lab.record(seen)) == {again: "conflict"}
    assert await lab.tables.fetchval("select doc from pages where id = 'p1'") == "d7"


async def test_a_later_edit_that_is_left_out_is_not_clobbered(lab: Lab) -> None:
    """S4: the earlier edit of the same record then conflicts."""
    first = await lab.call("edit", doc_id="d1", title="first")
    second = await lab.call("edit", doc_id="d1", body="second")
    plan = await lab.propose(second, first)
    await lab.approve(plan, leaveOut=[second])
    assert outcomes(await lab.record(plan)) == {second: "left_out", first: "conflict"}
    assert await lab.doc("d1") == ("first", "second")


async def test_a_step_half_way_that_fails_leaves_a_second_plan_that_goes_on_from_there(lab: Lab) -> None:
    """S6."""
    first = await lab.call("edit", doc_id="d1", title="first")
    second = await lab.call("edit", doc_id="d2", title="second")
    await lab.teammate("d2", body="by hand")
    again = await lab.propose(second, first, because={second: [first]})
    await lab.approve(again)
    assert outcomes(await lab.record(again)) == {second: "conflict", first: "blocked"}
    last = await lab.propose(second, first, because={second: [first]})
    await lab.approve(last, override=[second])
    assert outcomes(await lab.record(last)) == {second: "reverted", first: "reverted"}


async def test_a_record_that_came_back_under_another_name_is_taken_away_again_under_it(lab: Lab) -> None:
    """G8, S12: ids that change when a record is made again."""
    await lab.tables.execute("insert into docs (id, title, body) values ('tmp', 'title', 'body')")
    removed = await lab.call("remove", doc_id="tmp")
    assert await lab.take_back(removed) == {removed: "reverted"}
    reversal = (await lab.entry(removed)).reverted_by or ""
    assert await lab.take_back(reversal) == {reversal: "reverted"}
    assert await lab.doc("tmpx") is None


async def test_a_later_step_of_the_same_plan_knows_a_record_by_its_new_name(lab: Lab) -> None:
    """G8: the tool server maps its ids, the recorder looks where the record is now."""
    await lab.tables.execute("insert into docs (id, title, body) values ('tmp', 'title', 'body')")
    edited = await lab.call("edit", doc_id="tmp", title="agent")
    removed = await lab.call("remove", doc_id="tmp")

    async def mapped() -> None:
        if len(lab.office.undone) == 2:
            await lab.teammate("tmpx", title="title")
            lab.office.mode = "lie"

    lab.office.during = mapped
    assert await lab.take_back(removed, edited) == {removed: "reverted", edited: "reverted"}
    (receipt,) = await lab.receipts(edited)
    assert (receipt["expectedVersion"], receipt["versionBefore"], receipt["versionAfter"]) == ("1", "1", "2")


async def test_secret_fields_stay_sealed_in_the_reversal_and_are_verified_all_the_same(lab: Lab) -> None:
    """J18, G8."""
    entry = await lab.call("whisper", doc_id="d1", body="the password")
    assert await lab.take_back(entry) == {entry: "reverted"}
    assert await lab.doc("d1") == ("title", "body")
    for row in await lab.recorder.pool.fetch("select body from records where stream = $1", lab.run):
        assert b"the password" not in row["body"]
    reversal = await lab.entry((await lab.entry(entry)).reverted_by or "")
    assert json.loads(json.dumps(reversal.wire()))["effects"][0]["before"]["fields"]["body"] == {"sealed": True}
    assert await lab.take_back(reversal.id) == {reversal.id: "reverted"}
    assert await lab.doc("d1") == ("title", "the password")


async def test_a_write_to_a_record_that_is_being_taken_back_is_told_so(lab: Lab) -> None:
    """Contract: 409 reversal-running; a record of no step is free."""
    free = await lab.recorder.campaigns.open(OWNER, CampaignRequest(name="Free", serialize="none"))
    lab.campaign = free["id"]
    await lab.recorder.servers.put(lab.campaign, OWNER, "office", NatsServer(transport="nats", subject="tools.office"))
    await lab.recorder.campaigns.put_agent(lab.campaign, OWNER, AGENT.sub, AgentRequest())
    run = await lab.recorder.runs.open(lab.campaign, AGENT, RunRequest(agent="bot", model="m", principal=OWNER.sub))
    lab.run = run["id"]
    entry = await lab.call("edit", doc_id="d1", title="x")
    told: list[str] = []

    async def meanwhile() -> None:
        lab.office.during = None
        await lab.call("edit", doc_id="d2", title="free")
        try:
            await lab.call("edit", doc_id="d1", title="not now")
        except Problem as problem:
            told.append(problem.slug)

    lab.office.during = meanwhile
    assert await lab.take_back(entry) == {entry: "reverted"}
    assert told == ["reversal-running"]
    assert await lab.doc("d2") == ("free", "body")


async def test_two_reversals_of_one_record_go_one_after_the_other(lab: Lab) -> None:
    """J19: the second waits for the first one's holds and starts from what it left."""
    entries = [await lab.call("edit", doc_id=f"d{n}", title="x") for n in range(1, 4)]
    plans = [await lab.propose(entries[1], entries[0]), await lab.propose(entries[2], entries[1])]
    await asyncio.gather(*(lab.approve(plan) for plan in plans))
    records = [await lab.record(plan) for plan in plans]
    heard = [outcome for record in records for outcome in outcomes(record).values()]
    assert sorted(heard) == ["already_reverted", "reverted", "reverted", "reverted"]
    assert len(lab.office.undone) == 3


async def test_a_run_that_was_closed_can_be_taken_back(lab: Lab) -> None:
    """J13: the reversal's entry lives in the run of the entry, open or closed."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    await lab.recorder.runs.close(lab.run, AGENT)
    assert await lab.take_back(entry) == {entry: "reverted"}
    assert (await lab.entry((await lab.entry(entry)).reverted_by or "")).run == lab.run


async def test_a_verified_reversal_counts_as_exercised(lab: Lab) -> None:
    """P4."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    await lab.take_back(entry)
    rows = await lab.recorder.pool.fetch("select operation, entry from exercised")
    assert [(row["operation"], row["entry"]) for row in rows] == [("edit", entry)]


async def test_a_record_that_a_teammate_made_anew_at_the_same_version_is_a_conflict(lab: Lab) -> None:
    """G8: revisions begin anew with the record; what it holds tells that it is another one."""
    entry = await lab.call("create", doc_id="n1", title="agent")
    plan = await lab.propose(entry)
    await lab.tables.execute("delete from docs where id = 'n1'")
    await lab.tables.execute("insert into docs (id, title, body) values ('n1', 'teammate', 'long work')")
    await lab.approve(plan)
    assert outcomes(await lab.record(plan)) == {entry: "conflict"}
    assert await lab.doc("n1") == ("teammate", "long work")


async def test_other_content_at_the_expected_version_is_a_conflict_before_anything_is_sent(lab: Lab) -> None:
    """G8: a server that uses version numbers again, or whose record was made anew, is not asked to write over it."""
    entry = await lab.call("edit", doc_id="d1", title="agent")
    plan = await lab.propose(entry)
    await lab.tables.execute("update docs set title = 'teammate' where id = 'd1'")
    await lab.approve(plan)
    record = await lab.record(plan)
    assert outcomes(record) == {entry: "conflict"}
    assert "at the expected version with other content (title)" in record["receipts"][0]["detail"]
    assert (lab.office.undone, await lab.doc("d1")) == ([], ("teammate", "body"))


async def test_other_content_that_a_person_said_to_go_over_is_no_conflict_for_the_recorder(lab: Lab) -> None:
    """G8: an override binds to the version that was shown."""
    entry = await lab.call("edit", doc_id="d1", title="agent")
    plan = await lab.propose(entry)
    await lab.tables.execute("update docs set title = 'teammate' where id = 'd1'")
    await lab.approve(plan, override=[entry])
    await lab.record(plan)
    assert len(lab.office.undone) == 1


async def test_a_conflict_that_the_plan_shows_is_not_gone_over_at_the_same_version(lab: Lab) -> None:
    """G5, G8: only an override goes over it; nothing is sent."""
    entry = await lab.call("edit", doc_id="d1", title="agent")
    differs = {"fields": [{"field": "title", "was": "title", "wrote": "agent", "now": "teammate"}]}
    plan = await lab.propose(entry, steps={entry: {"conflict": differs}})
    await lab.approve(plan)
    assert outcomes(await lab.record(plan)) == {entry: "conflict"}
    assert lab.office.undone == []
