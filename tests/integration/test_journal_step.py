"""append_step_v1 beside append_v1: a call's step that is alone in its group is written as it would be among others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from recorder.journal import Holds, NewRecord, Refused, Steady, Unit
from recorder.journal.appending import call_append
from recorder.journal.encoding import encode, step_arguments
from recorder.journal.fsck import fsck
from recorder.journal.unit import Status
from takeback.ids import new_id
from tests.integration.journal_units import change, journal_on, opened


def plain_steps(run: str) -> list[Unit]:
    """A call's steps in *run*, and such as are refused; names begin with the run's."""
    campaign = f"{run}.campaign"

    def step(status: Status, entry: str, fence: int | None = None, **options: Any) -> Unit:
        defaults = {"run": run, "campaign": campaign, "key": f"{run}.key"}
        return change(status, entry=f"{run}.{entry}", fence=fence, **(defaults | options))

    return [
        step("pending", "e1", 0, holds=Holds(campaign, checked=["crm://free"]), stream_open=True),
        step("pending", "e2", 1),  # a writer is pending
        step("pending", "e1", 1),  # it is there already
        step("committed", "e1", expect=["pending"], published=True),
        step("pending", "e3", 1),  # the fence has moved
        step("pending", "e3", 2, holds=Holds(campaign, checked=["crm://held"])),
        step("pending", "e3", 2, steady=Steady(campaign, 7)),
        step("pending", "e3", 2, steady=Steady(campaign, 2)),
        step("in_doubt", "e3", expect=["pending"], published=True),
        step("pending", "e4", steady=Steady(campaign, 2)),  # a write is in doubt
        step("pending", "e4", steady=Steady(campaign, 2, fetched=True)),
        step("failed", "e3", expect=["pending"]),  # not any more
        step("failed", "e3", expect=["pending", "in_doubt"], published=True),
        step("committed", "e5", key=None, published=True),
        step("committed", "e6", key=None, expect=["pending"]),  # it was never made
        step("pending", "e7", run=f"{run}.nowhere"),
        step("denied", "e8", key=None, steady=Steady(campaign, 2, fetched=True)),  # an answer waits to be fetched
        step("denied", "e8", key=None, steady=Steady(campaign, 2)),
        misnamed(step("committed", "e10", key=None)),
    ]


def misnamed(unit: Unit) -> Unit:
    """*unit* with a record that names another campaign than its run's: the run's is what counts."""
    (record,) = unit.records
    return unit._replace(records=[record._replace(campaign="cmp_other")])


@pytest.mark.parametrize("state", ["paused", "closed"])
async def test_a_step_alone_is_written_as_the_same_step_among_others(postgres_url: str, state: str) -> None:
    """J2, J19: append_step_v1 and append_v1 keep the same rules and write the same rows."""

    async def play(connection: asyncpg.Connection, run: str, company: Sequence[Unit]) -> list[object]:
        campaign = f"{run}.campaign"
        told = Unit([NewRecord(campaign, campaign, new_id("rec"), "told", b"{}")])
        held = told._replace(holds=Holds(campaign, taken=["crm://held"], owner="pln_1"))
        stopped = Unit([NewRecord(run, campaign, new_id("rec"), f"run.{state}", b"{}")])
        late = change("pending", entry=f"{run}.e9", run=run, campaign=campaign, stream_open=True)
        await connection.execute(
            "insert into approvals (id, entry, campaign, run, status, document, expires_at)"
            " values ($1, $1, $2, $1, 'pending', '{}', now())",
            run, campaign,
        )  # fmt: skip
        seen: list[object] = []
        for unit in (opened(run, campaign), opened(campaign, campaign), held, *plain_steps(run), stopped, late):
            encoded = encode(unit)
            assert (step_arguments(unit, encoded) is not None) == bool(unit.entries)
            others = [(other, encode(other)) for other in company]
            answer = (await call_append(connection, [(unit, encoded), *others]))[0]
            if isinstance(answer, Refused):
                seen.append((answer.reason, answer.detail.removeprefix(run), answer.seq))
            else:
                placed = answer.records[0]
                assert placed.hash == await connection.fetchval(
                    "select hash from records where id = $1", unit.records[0].id
                )
                seen.append((placed.stream.removeprefix(run), placed.seq, placed.label, placed.after, answer.fence))
        return seen

    async def rows(pool: asyncpg.Pool, run: str) -> list[str]:
        kept: list[str] = []
        for table, columns in {
            "entries": "id, campaign, status, serial_key, write, view_seq, label, lease_until is null, concluded_at is null",
            "streams": "stream, status, seq, published_seq, labels, published_hash is null, published_at <= at",
            "entry_resources": "entry, resource, role, campaign, version",
            "fences": "serial_key, value",
            "outbox": "stream, seq",
            "records": "stream, seq, campaign, type, entry, label, after, published",
        }.items():
            first = columns.split(",")[0]
            found = await pool.fetch(f"select {columns} from {table} where {first} like $1 order by 1, 2", f"{run}%")
            kept += [f"{table} {tuple(row)}".replace(run, "") for row in found]
        return kept

    async with journal_on(postgres_url) as (_, pool), pool.acquire() as connection:
        alone, among = new_id("a"), new_id("b")
        bystanders = [
            change("committed", entry="ent_by", run="run_by", expect=["pending"])
        ]  # refused: it was never made
        assert await play(connection, alone, []) == await play(connection, among, bystanders)
        assert await rows(pool, alone) == await rows(pool, among)
        assert [str(difference) async for difference in fsck(pool)] == []


async def test_a_recorder_of_the_release_before_goes_on_writing(postgres_url: str) -> None:
    """design.md: migrations expand first; `steady_fetched` came with 0005, and recorders are replaced one after the other."""
    unit = change("pending", entry="ent_1", run="run_1")
    arguments = step_arguments(unit, encode(unit))
    assert arguments is not None
    older = arguments[:-1]
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        places = ", ".join(f"${number}" for number in range(1, len(older) + 1))
        row = await pool.fetchrow(f"select refused, seq from append_step_v1({places})", *older)
    assert (row["refused"], row["seq"]) == (None, 2)


def test_a_step_that_uses_a_record_of_another_campaign_is_no_plain_one() -> None:
    """J2: append_step_v1 knows one campaign."""
    unit = change("committed", entry="ent_1", run="run_1", campaign="cmp_1")
    assert step_arguments(unit, encode(unit)) is not None
    elsewhere = unit._replace(resources=[use._replace(campaign="cmp_2") for use in unit.resources])
    assert step_arguments(elsewhere, encode(elsewhere)) is None
