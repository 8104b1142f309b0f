"""The review queue: which runs of a campaign can still be taken back, the one that closes first on top (U2, N2)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from notifier.deadlines import Deadlines
from notifier.review import Known, Run, review
from notifier.reviews import Reviews
from takeback import json
from takeback.auth import Caller
from takeback.errors import invalid
from takeback.ids import is_valid_id
from takeback.messages.entry import Entry
from takeback.messages.questions import QueuedReview

PAGE = 50
_NEVER = "never"
# What `standing` calls a step, in the words of the table: `entries_open` is its index.
_OPEN = """
e.campaign = $1 and e.status = 'committed' and e.undo_kind = 'compensate' and e.kind not in ('read', 'reversal')
    and not e.unresolved and (e.undo_by is null or e.undo_by > $2)
"""
_SEEN = """
e.entry in (
    select unnest(entries) from acknowledgements where run = any($3)
    union all select unnest(entries) from decisions where campaign = $1
)
"""
_PAGE = f"""
select e.run, min(e.undo_by) as first from entries e
where {_OPEN} and ($3::text[] is null or e.run = any($3)) group by e.run
having $5::text is null or (coalesce(min(e.undo_by), 'infinity'), e.run) > (coalesce($4::timestamptz, 'infinity'), $5)
order by coalesce(min(e.undo_by), 'infinity'), e.run limit $6
"""  # noqa: S608  the words above
_COUNTED = f"""
select e.run, count(*) as open, count(*) filter (where {_SEEN}) as acknowledged
from entries e where {_OPEN} and e.run = any($3) group by e.run
"""  # noqa: S608
_FIRST = f"""
select distinct on (e.run) e.entry, e.view, {_SEEN} as seen, r.run, r.campaign, r.agent, r.principal, r.status
from entries e join runs r on r.run = e.run where {_OPEN} and e.run = any($3)
order by e.run, e.undo_by nulls last, e.place
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place after *run*, whose first window closes at *first* (None: none of its windows has a deadline)."""

    first: datetime | None
    run: str

    @classmethod
    def read(cls, given: str) -> Cursor:
        """What `str` has written; raises `Problem` 422 for anything else."""
        first, _, run = given.rpartition("~")
        try:
            at = None if first == _NEVER else datetime.fromisoformat(first)
            if is_valid_id(run) and (at is None or at.tzinfo is not None):
                return cls(at, run)
        except ValueError:
            pass  # told below, like any other that no listing gave
        raise invalid("The cursor is not one that a listing gave.")

    def __str__(self) -> str:
        return f"{_NEVER if self.first is None else self.first.isoformat()}~{self.run}"


class Queue:
    """For members of the campaign; each answer is computed now."""

    def __init__(self, pool: asyncpg.Pool, reviews: Reviews, deadlines: Deadlines) -> None:
        self._pool = pool
        self._reviews = reviews
        self._deadlines = deadlines

    async def read(
        self, campaign: str, caller: Caller, after: Cursor | None = None, runs: Collection[str] | None = None
    ) -> tuple[list[QueuedReview], Cursor | None]:
        """The runs with an open window (of *runs* alone) by the earliest deadline, those without any last: a page of them,
        and the place after which the next one begins."""
        standing = await self._reviews.enter(campaign, caller)
        wanted, size = (None, PAGE) if runs is None else (list(runs), max(PAGE, len(runs)))
        place = (None, None) if after is None else (after.first, after.run)
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            now: datetime = await connection.fetchval("select clock_timestamp()")
            found = await connection.fetch(_PAGE, campaign, now, wanted, *place, size + 1)
            page = found[:size]
            names = [row["run"] for row in page]
            counted = {row["run"]: row for row in await connection.fetch(_COUNTED, campaign, now, names)}
            firsts = {row["run"]: row for row in await connection.fetch(_FIRST, campaign, now, names)}
            deadlines = await self._deadlines.of(
                connection, campaign, [row["entry"] for row in firsts.values()], now, with_duty=standing != "agent"
            )
        known = Known(deadlines=deadlines)
        queued = [_queued(firsts[run], counted[run], known, now) for run in names]
        return queued, Cursor(page[-1]["first"], names[-1]) if len(found) > size else None


def _queued(first: asyncpg.Record, counted: asyncpg.Record, known: Known, now: datetime) -> QueuedReview:
    run = Run(first["run"], first["campaign"], first["agent"], first["principal"], first["status"])
    (window,) = review(run, [Entry.model_validate(json.loads(first["view"]))], [], now, known).open
    return QueuedReview(
        run=run.id,
        agent=run.agent,
        principal=run.principal,
        status=run.status,
        open=counted["open"],
        acknowledged=counted["acknowledged"],
        next=window.model_copy(update={"acknowledged": first["seen"]}),
    )
