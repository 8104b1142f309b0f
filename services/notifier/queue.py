"""The review queue: which runs of a campaign can still be taken back, the one that closes first on top (U2, N2)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import asyncpg

from notifier.review import Run, review
from notifier.reviews import Reviews
from takeback import json
from takeback.auth import Caller
from takeback.messages.entry import Entry
from takeback.messages.questions import QueuedReview
from takeback.messages.review import Acknowledgement

_AT_ONCE = 500
"""How many open windows are looked at: the earliest ones. Whoever has more of them than that begins with these."""
_OPEN = """
select e.view, r.run, r.campaign, r.agent, r.principal, r.status
from entries e join runs r on r.run = e.run
where e.campaign = $1 and e.status = 'committed' and e.undo_kind = 'compensate' and e.kind not in ('read', 'reversal')
    and (e.undo_by is null or e.undo_by > $2)
order by e.undo_by nulls last limit $3
"""


class Queue:
    """For members of the campaign; each answer is computed now."""

    def __init__(self, pool: asyncpg.Pool, reviews: Reviews) -> None:
        self._pool = pool
        self._reviews = reviews

    async def read(self, campaign: str, caller: Caller) -> list[QueuedReview]:
        """The runs with an open window, by the earliest deadline; those without any deadline come last."""
        await self._reviews.enter(campaign, caller)
        now: datetime = await self._pool.fetchval("select clock_timestamp()")
        found: dict[str, tuple[Run, list[Entry]]] = {}
        for row in await self._pool.fetch(_OPEN, campaign, now, _AT_ONCE):
            run = Run(row["run"], row["campaign"], row["agent"], row["principal"], row["status"])
            found.setdefault(run.id, (run, []))[1].append(Entry.model_validate(json.loads(row["view"])))
        acknowledged: dict[str, list[Acknowledgement]] = {}
        for row in await self._pool.fetch(
            "select run, by_sub, authority, at, entries from acknowledgements where run = any($1)", list(found)
        ):
            acknowledged.setdefault(row["run"], []).append(
                Acknowledgement(by=row["by_sub"], authority=row["authority"], at=row["at"], entries=row["entries"])
            )
        queued = [_queued(run, entries, acknowledged.get(run.id, []), now) for run, entries in found.values()]
        return [one for one in queued if one is not None]


def _queued(
    run: Run, entries: Sequence[Entry], acknowledged: Sequence[Acknowledgement], now: datetime
) -> QueuedReview | None:
    opened = review(run, entries, acknowledged, now).open
    if not opened:
        return None
    return QueuedReview(
        run=run.id,
        agent=run.agent,
        principal=run.principal,
        status=run.status,
        open=len(opened),
        acknowledged=sum(window.acknowledged for window in opened),
        next=opened[0],
    )
