"""append_v1: whole units or none, the rules under their locks, and a chain that stays exact."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from recorder.journal import (
    Appended,
    Holds,
    Idempotency,
    Interaction,
    Journal,
    JournalReader,
    NewRecord,
    Refused,
    Steady,
    Unit,
    Unwritable,
)
from recorder.journal.chain import GENESIS, hash_of
from recorder.journal.fsck import fsck
from takeback.ids import new_id
from tests.integration.journal_units import change, journal_on, opened


async def refused(journal: Journal, unit: Unit) -> Refused:
    with pytest.raises(Refused) as caught:
        await journal.append(unit)
    return caught.value


async def test_append_answers_a_durable_place_in_the_chain(postgres_url: str) -> None:
    """J2, J13: seq, time, hash and label come back once the record is committed."""
    async with journal_on(postgres_url) as (journal, pool):
        first = await journal.append(opened("run_1"))
        intent = await journal.append(change("pending", entry="ent_1", run="run_1", key="cmp_1"))
        end = await journal.append(
            change("committed", entry="ent_1", run="run_1", key="cmp_1", expect=["pending"], fence=1, published=True)
        )
        records = await JournalReader(pool).records("run_1")

    assert [record.seq for record in records] == [1, 2, 3]
    assert records[0].previous_hash == GENESIS
    assert [record.hash for record in records] == [hash_of(record) for record in records]
    assert [record.previous_hash for record in records[1:]] == [record.hash for record in records[:-1]]
    assert (first.records[0].after, intent.records[0].after, end.records[0].after) == (0, None, 1)
    assert (intent.records[0].label, end.records[0].label) == (1, None)
    assert (intent.fence, end.fence) == (1, 2)


async def test_the_entry_stands_as_its_latest_record_says(postgres_url: str) -> None:
    """J5: label and times are the database's, the rest is the record's body."""
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        intent = await journal.append(change("pending", entry="ent_1", run="run_1"))
        end = await journal.append(change("committed", entry="ent_1", run="run_1", expect=["pending"]))
        reader = JournalReader(pool)
        entry = await reader.entry("ent_1")
        of_run = await reader.entries_of_run("run_1")

    assert entry is not None
    assert of_run == [entry]
    assert entry.public["label"] == "e1"
    assert entry.created_at == intent.records[0].at
    assert entry.concluded_at == end.records[0].at
    assert entry.public["status"] == "committed"
    assert "compensationToken" not in entry.public["undo"]
    assert entry.entry["undo"]["compensationToken"] == {"sealed": "c2VjcmV0"}


async def test_one_pending_writer_per_key(postgres_url: str) -> None:
    """J19: whatever Redis says."""
    async with journal_on(postgres_url) as (journal, _):
        await journal.append(opened("run_1"))
        await journal.append(change("pending", entry="ent_1", run="run_1", key="k"))
        second = await refused(journal, change("pending", entry="ent_2", run="run_1", key="k"))
        await journal.append(change("in_doubt", entry="ent_1", run="run_1", key="k", expect=["pending"]))
        await journal.append(change("pending", entry="ent_2", run="run_1", key="k"))

    assert (second.reason, second.detail) == ("writer-pending", "ent_1")


async def test_an_intent_that_read_an_older_fence_is_refused(postgres_url: str) -> None:
    """J19: the pre-state that it carries may have been replaced."""
    async with journal_on(postgres_url) as (journal, _):
        await journal.append(opened("run_1"))
        await journal.append(change("pending", entry="ent_1", run="run_1", key="k", fence=0))
        await journal.append(change("committed", entry="ent_1", run="run_1", key="k", expect=["pending"]))
        moved = await refused(journal, change("pending", entry="ent_2", run="run_1", key="k", fence=1))

    assert (moved.reason, moved.detail) == ("fence-moved", "2")


async def test_an_intent_that_counts_on_a_steady_campaign_is_refused_once_that_moved_or_has_a_doubt(
    postgres_url: str,
) -> None:
    """J7, J19: whoever did not look learns in the commit that there is something to see."""

    def intent(entry: str, version: int) -> Unit:
        return change("pending", entry=entry, run="run_1")._replace(steady=Steady("cmp_1", version))

    def told(type_: str) -> Unit:
        return Unit([NewRecord("cmp_1", "cmp_1", new_id("rec"), type_, b"{}", kind="campaign")])

    async with journal_on(postgres_url) as (journal, _):
        await journal.append(told("campaign.opened"))
        await journal.append(opened("run_1"))
        await journal.append(intent("ent_1", 1))
        await journal.append(change("in_doubt", entry="ent_1", run="run_1", expect=["pending"]))
        doubtful = await refused(journal, intent("ent_2", 1))
        await journal.append(change("failed", entry="ent_1", run="run_1", expect=["in_doubt"]))
        await journal.append(intent("ent_2", 1))
        await journal.append(told("policy.changed"))
        moved = await refused(journal, intent("ent_3", 1))
        await journal.append(intent("ent_3", 2))

    assert [(each.reason, each.detail) for each in (doubtful, moved)] == [("unsteady", "cmp_1")] * 2


async def test_an_intent_that_counts_on_nothing_to_be_fetched_is_refused_while_an_answer_waits(
    postgres_url: str,
) -> None:
    """S13: a call through the MCP door that did not look learns in its commit that it may be the retry of an asked one."""

    def intent(entry: str) -> Unit:
        return change("pending", entry=entry, run="run_1")._replace(steady=Steady("cmp_1", 1, fetched=True))

    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(
            Unit([NewRecord("cmp_1", "cmp_1", new_id("rec"), "campaign.opened", b"{}", kind="campaign")])
        )
        await journal.append(opened("run_1"))
        await journal.append(intent("ent_1"))
        await journal.append(change("failed", entry="ent_1", run="run_1", expect=["pending"]))
        asked = "insert into approvals (id, entry, campaign, run, status, document, expires_at)"
        await pool.execute(f"{asked} values ('apr_1', 'ent_0', 'cmp_1', 'run_1', 'pending', '{{}}', now())")
        waits = await refused(journal, intent("ent_2"))
        await pool.execute("update approvals set fetched_at = now()")
        await journal.append(intent("ent_2"))

    assert (waits.reason, waits.detail) == ("unsteady", "cmp_1")


async def test_one_claim_per_entry(postgres_url: str) -> None:
    """G9: a reversal that is pending, in doubt, unverified or done keeps others out; a failed one does not."""
    async with journal_on(postgres_url) as (journal, _):
        await journal.append(opened("run_1"))
        await journal.append(change("pending", entry="rev_1", run="run_1", reverts="ent_1"))
        for status, before in (("in_doubt", "pending"), ("unverified", "in_doubt"), ("committed", "unverified")):
            await journal.append(change(status, entry="rev_1", run="run_1", reverts="ent_1", expect=[before]))  # type: ignore[arg-type, list-item]
            second = await refused(journal, change("pending", entry="rev_2", run="run_1", reverts="ent_1"))
            assert (second.reason, second.detail) == ("already-claimed", "rev_1")
        await journal.append(change("reverted", entry="rev_1", run="run_1", reverts="ent_1", expect=["committed"]))
        await journal.append(change("pending", entry="rev_2", run="run_1", reverts="ent_1"))


async def test_a_status_changes_only_from_where_the_caller_saw_it(postgres_url: str) -> None:
    """J7: a late outcome does not overwrite what was settled meanwhile."""
    async with journal_on(postgres_url) as (journal, _):
        await journal.append(opened("run_1"))
        await journal.append(change("pending", entry="ent_1", run="run_1"))
        await journal.append(change("committed", entry="ent_1", run="run_1", expect=["pending", "in_doubt"]))
        late = await refused(journal, change("failed", entry="ent_1", run="run_1", expect=["pending"]))
        again = await refused(journal, change("pending", entry="ent_1", run="run_1"))
        absent = await refused(journal, change("failed", entry="ent_9", run="run_1", expect=["pending"]))

    assert (late.reason, late.detail) == ("status-changed", "committed")
    assert (again.reason, again.detail) == ("status-changed", "committed")
    assert (absent.reason, absent.detail) == ("status-changed", "absent")


async def test_an_idempotency_key_answers_with_its_entry_and_refuses_another_body(postgres_url: str) -> None:
    """J2: the key is stored in the intent's own commit."""
    claim = Idempotency("ann", "/v1/runs/run_1/calls", "key", "hash", "ent_1")
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        await journal.append(change("pending", entry="ent_1", run="run_1", idempotency=claim))
        same = await refused(
            journal, change("pending", entry="ent_2", run="run_1", idempotency=claim._replace(entry="ent_2"))
        )
        other = await refused(
            journal, change("pending", entry="ent_2", run="run_1", idempotency=claim._replace(body_hash="another"))
        )
        await pool.execute("update idempotency set created_at = now() - interval '8 days'")
        await journal.append(
            change(
                "pending", entry="ent_2", run="run_1", idempotency=claim._replace(entry="ent_2", body_hash="another")
            )
        )

    assert (same.reason, same.detail) == ("idempotency-replay", "ent_1")
    assert (other.reason, other.detail) == ("idempotency-conflict", "ent_1")


async def test_an_interaction_belongs_to_the_run_that_named_it_first(postgres_url: str) -> None:
    """An interaction id is unique in its campaign."""
    async with journal_on(postgres_url) as (journal, _):
        for run in ("run_1", "run_2"):
            await journal.append(opened(run))
        for entry in ("ent_1", "ent_2"):
            await journal.append(
                change("pending", entry=entry, run="run_1", interaction=Interaction("cmp_1", "int_1", "run_1"))
            )
        taken = await refused(
            journal, change("pending", entry="ent_3", run="run_2", interaction=Interaction("cmp_1", "int_1", "run_2"))
        )
        await journal.append(
            change("pending", entry="ent_3", run="run_2", interaction=Interaction("cmp_2", "int_1", "run_2"))
        )

    assert (taken.reason, taken.detail) == ("interaction-taken", "run_1")


async def test_what_a_reversal_holds_is_refused_to_others_until_it_lets_go(postgres_url: str) -> None:
    """A plan holds still while it runs."""
    async with journal_on(postgres_url) as (journal, _):
        await journal.append(opened("run_1"))
        await journal.append(
            change("pending", entry="rev_1", run="run_1", holds=Holds("cmp_1", taken=["crm://1"], owner="pln_1"))
        )
        held = await refused(
            journal, change("pending", entry="ent_1", run="run_1", holds=Holds("cmp_1", checked=["crm://0", "crm://1"]))
        )
        await journal.append(
            change("pending", entry="rev_2", run="run_1", holds=Holds("cmp_1", checked=["crm://1"], owner="pln_1"))
        )
        await journal.append(
            change(
                "committed",
                entry="rev_1",
                run="run_1",
                expect=["pending"],
                holds=Holds("cmp_1", owner="pln_1", released=True),
            )
        )
        await journal.append(
            change("pending", entry="ent_1", run="run_1", holds=Holds("cmp_1", checked=["crm://0", "crm://1"]))
        )

    assert (held.reason, held.detail) == ("reversal-running", "crm://1")


async def test_a_closed_or_paused_run_takes_no_call_and_still_takes_its_outcomes(postgres_url: str) -> None:
    """J14: the chain goes on after the run closed."""

    def say(type_: str) -> Unit:
        return Unit([NewRecord("run_1", "cmp_1", new_id("rec"), type_, b"{}", published=True)])

    async with journal_on(postgres_url) as (journal, _):
        await journal.append(opened("run_1"))
        await journal.append(change("pending", entry="ent_1", run="run_1", stream_open=True))
        await journal.append(say("run.paused"))
        paused = await refused(journal, change("pending", entry="ent_2", run="run_1", stream_open=True))
        await journal.append(say("run.resumed"))
        await journal.append(change("pending", entry="ent_2", run="run_1", stream_open=True))
        await journal.append(say("run.closed"))
        closed = await refused(journal, change("pending", entry="ent_3", run="run_1", stream_open=True))
        await journal.append(change("committed", entry="ent_1", run="run_1", expect=["pending"]))
        missing = await refused(journal, change("pending", entry="ent_3", run="run_9"))

    assert (paused.reason, closed.reason, missing.reason) == ("run-paused", "run-closed", "stream-missing")


async def test_a_record_that_is_there_already_is_answered_with_its_place(postgres_url: str) -> None:
    """A command that is sent twice is one fact."""
    unit = Unit([NewRecord("cmp_1", "cmp_1", "rec_x", "plan.proposed", b"{}", kind="campaign")], once="rec_x")
    async with journal_on(postgres_url) as (journal, _):
        await journal.append(
            Unit([NewRecord("cmp_1", "cmp_1", new_id("rec"), "campaign.opened", b"{}", kind="campaign")])
        )
        answers = await asyncio.gather(*(journal.append(unit) for _ in range(3)), return_exceptions=True)
        again = await refused(journal, unit)

    assert sum(isinstance(answer, Appended) for answer in answers) == 1
    assert {answer.seq for answer in answers if isinstance(answer, Refused)} == {2}
    assert (again.reason, again.detail, again.seq) == ("duplicate-record", "cmp_1", 2)


async def test_a_unit_that_is_refused_writes_nothing_of_itself(postgres_url: str) -> None:
    """J3: not its records, not its key, not its interaction, not its fence."""
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        await journal.append(change("pending", entry="ent_1", run="run_1", key="k"))
        await refused(
            journal,
            change(
                "pending",
                entry="ent_2",
                run="run_1",
                key="k",
                idempotency=Idempotency("ann", "/p", "key", "hash", "ent_2"),
                interaction=Interaction("cmp_1", "int_1", "run_1"),
                holds=Holds("cmp_1", taken=["crm://1"], owner="pln_1"),
            ),
        )
        counts = await pool.fetchrow(
            "select (select count(*) from records), (select count(*) from idempotency), (select count(*) from interactions),"
            " (select count(*) from holds), (select value from fences where serial_key = 'k')"
        )
    assert tuple(counts) == (2, 0, 0, 0, 1)


@pytest.mark.parametrize("bad", ["nul \x00", "half a pair \ud800", "x" * 3000])
async def test_what_the_database_cannot_keep_is_refused_before_it_meets_others(postgres_url: str, bad: str) -> None:
    """J3: hostile input spoils no group."""
    async with journal_on(postgres_url) as (journal, _):
        await journal.append(opened("run_1"))
        unit = change(
            "pending", entry="ent_1", run="run_1", idempotency=Idempotency("ann", "/v1/runs", bad, "hash", "ent_1")
        )
        good = [journal.append(change("pending", entry=f"ent_g{i}", run="run_1")) for i in range(5)]
        with pytest.raises(Unwritable):
            await journal.append(unit)
        answers = await asyncio.gather(*good)

    assert [answer.records[0].label for answer in answers] == [1, 2, 3, 4, 5]


async def test_a_transaction_writes_other_tables_in_the_same_commit(postgres_url: str) -> None:
    """J2: a member and the record that says so stand or fall together."""
    opening = Unit([NewRecord("cmp_1", "cmp_1", new_id("rec"), "campaign.opened", b"{}", kind="campaign")])
    insert = "insert into members (campaign, sub, role) values ('cmp_1', $1, 'owner')"
    async with journal_on(postgres_url) as (journal, pool):
        async with journal.transaction() as transaction:
            await transaction.append(opening)
            await transaction.execute(insert, "ann")
        with pytest.raises(ZeroDivisionError):
            async with journal.transaction() as transaction:
                await transaction.append(
                    Unit([NewRecord("cmp_1", "cmp_1", new_id("rec"), "member.changed", b"{}", kind="campaign")])
                )
                await transaction.execute(insert, "bob")
                raise ZeroDivisionError
        members = [row["sub"] for row in await pool.fetch("select sub from members")]
        records = await JournalReader(pool).records("cmp_1")

    assert members == ["ann"]
    assert [record.type for record in records] == ["campaign.opened"]


async def test_heads_say_what_is_published_and_what_moved(postgres_url: str) -> None:
    """Consumers compare heads with the recorder."""
    async with journal_on(postgres_url) as (journal, pool):
        reader = JournalReader(pool)
        await journal.append(opened("run_1"))
        await journal.append(opened("run_2", "cmp_2"))
        await journal.append(change("pending", entry="ent_1", run="run_1"))
        end = await journal.append(change("committed", entry="ent_1", run="run_1", expect=["pending"], published=True))
        await journal.append(change("pending", entry="ent_2", run="run_1"))
        heads, _ = await reader.heads("cmp_1")
        moved, _ = await reader.heads("cmp_1", end.records[0].at + timedelta(days=1))
        first, cursor = await reader.streams(limit=1)
        second, last = await reader.streams(cursor=cursor, limit=1)
        events = await reader.events("run_1")
        later = await reader.events("run_1", after=1)
        unsettled = await reader.unsettled("cmp_1")

    assert [(head.stream, head.seq, head.hash) for head in heads] == [("run_1", 3, end.records[0].hash.hex())]
    assert moved == []
    assert [head.stream for head in (*first, *second)] == ["run_1", "run_2"]
    assert last is None
    assert [(event["data"]["seq"], event["data"]["after"]) for event in events] == [(1, 0), (3, 1)]
    assert later == events[1:]
    assert [entry.id for entry in unsettled] == ["ent_2"]


async def test_the_chain_stays_exact_under_writers_of_two_recorders(postgres_url: str) -> None:
    """J13, J17, J19: no deadlock, nothing acknowledged is lost, every stream without a gap."""
    async with journal_on(postgres_url) as (one, pool), journal_on(postgres_url) as (two, _):
        runs = [f"run_{i}" for i in range(6)]
        for run in runs:
            await one.append(opened(run))

        async def caller(number: int) -> list[str]:
            acknowledged = []
            for step in range(25):
                journal = (one, two)[(number + step) % 2]
                run, key = runs[(number + step) % 6], f"key {(number * step) % 4}"
                entry = f"ent_{number}_{step}"
                try:
                    await journal.append(change("pending", entry=entry, run=run, key=key))
                except Refused as reason:
                    assert reason.reason == "writer-pending"
                    continue
                acknowledged.append(entry)
                other = (two, one)[(number + step) % 2]
                if number % 4 == 0:
                    async with other.transaction() as transaction:
                        await transaction.append(change("committed", entry=entry, run=run, key=key, expect=["pending"]))
                else:
                    await other.append(
                        change("committed", entry=entry, run=run, key=key, expect=["pending"], published=True)
                    )
            return acknowledged

        entries = [entry for found in await asyncio.gather(*(caller(i) for i in range(24))) for entry in found]
        stored = {row["id"] for row in await pool.fetch("select id from entries where status = 'committed'")}
        differences = [str(difference) async for difference in fsck(pool)]

    assert len(entries) > 24
    assert stored == set(entries)
    assert differences == []
