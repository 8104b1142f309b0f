"""Questions of the journal (U3): calls per model version, what was taken back and why, and what never was.

Counted from the projection as it is when the question is asked. A call counts as taken back while it is; a category counts
for the newest reversal that took it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, cast

import asyncpg

from notifier.reviews import Reviews
from takeback.auth import Caller
from takeback.messages.entry import UndoKind
from takeback.messages.questions import (
    Calls,
    CallsOf,
    NeverUndone,
    Reversals,
    TakenBackByModel,
    TakenBackByOperation,
    Why,
)

_COUNTED = """
select server, operation, model, kind, status, undo_kind, category, ever, count(*) as calls
from (
    select e.*, t.category, t.entry is not null as ever
    from entries e left join taken_back t on t.entry = e.entry
    where e.campaign = $1 and e.kind <> 'reversal'
) as called
group by server, operation, model, kind, status, undo_kind, category, ever
order by server, operation, model
"""
_HAPPENED = frozenset({"committed", "reverting", "reverted"})
_REFUSED = frozenset({"denied", "expired"})
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Counted:
    """How many calls share these: *ever* says that they were taken back at some time, *category* why."""

    server: str
    operation: str
    model: str
    kind: str
    status: str
    undo_kind: str
    category: str | None
    ever: bool
    calls: int

    @property
    def is_change(self) -> bool:
        """Whether these calls changed something."""
        return self.kind != "read" and self.status in _HAPPENED

    @property
    def why(self) -> Why:
        """The category of their reversal."""
        return cast(Why, self.category or "unsaid")


class Questions:
    """For members of the campaign; an answer stands on everything that was acknowledged before it was asked for."""

    def __init__(self, pool: asyncpg.Pool, reviews: Reviews) -> None:
        self._pool = pool
        self._reviews = reviews

    async def calls(self, campaign: str, caller: Caller) -> Calls:
        """How often each operation is called by each model version, and what became of the calls."""
        at, counted = await self._counted(campaign, caller)
        groups = _grouped(counted, lambda one: (one.server, one.operation, one.model))
        items = [_calls_of(key, group) for key, group in groups.items()]
        return Calls(campaign=campaign, as_of=at, total=sum(one.calls for one in counted), items=items)

    async def reversals(self, campaign: str, caller: Caller) -> Reversals:
        """What share of the changes was taken back, by model version and operation, and why; what never was."""
        at, counted = await self._counted(campaign, caller)
        changes = [one for one in counted if one.is_change]
        by_model = _grouped(changes, lambda one: one.model)
        by_operation = _grouped(changes, lambda one: (one.server, one.operation))
        return Reversals(
            campaign=campaign,
            as_of=at,
            **_share(changes),
            by_model=[TakenBackByModel(model=model, **_share(group)) for model, group in by_model.items()],
            by_operation=[
                TakenBackByOperation(server=server, operation=operation, **_share(group))
                for (server, operation), group in by_operation.items()
            ],
            never_undone=[
                NeverUndone(
                    server=server,
                    operation=operation,
                    calls=sum(one.calls for one in group),
                    undo=_best(group),
                )
                for (server, operation), group in by_operation.items()
                if not any(one.ever for one in group)
            ],
        )

    async def _counted(self, campaign: str, caller: Caller) -> tuple[datetime, list[Counted]]:
        await self._reviews.enter(campaign, caller)
        rows = await self._pool.fetch(_COUNTED, campaign)
        at: datetime = await self._pool.fetchval("select clock_timestamp()")
        return at, [Counted(**row) for row in rows]


def _grouped(counted: Iterable[Counted], key: Callable[[Counted], Key]) -> dict[Key, list[Counted]]:
    groups: dict[Key, list[Counted]] = {}
    for one in counted:
        groups.setdefault(key(one), []).append(one)
    return groups


def _calls_of(key: tuple[str, str, str], group: list[Counted]) -> CallsOf:
    server, operation, model = key
    by_status: Counter[str] = Counter()
    for one in group:
        by_status[one.status] += one.calls
    refused = sum(by_status[status] for status in _REFUSED)
    settled = by_status["committed"] + by_status["reverted"] + by_status["failed"] + refused
    return CallsOf(
        server=server,
        operation=operation,
        model=model,
        calls=by_status.total(),
        committed=by_status["committed"],
        reverted=by_status["reverted"],
        failed=by_status["failed"],
        denied=refused,
        unsettled=by_status.total() - settled,
    )


def _share(group: list[Counted]) -> dict[str, Any]:
    happened = sum(one.calls for one in group)
    why: Counter[Why] = Counter()
    for one in group:
        if one.status == "reverted":
            why[one.why] += one.calls
    return {
        "happened": happened,
        "reverted": why.total(),
        "share": round(why.total() / happened, 4) if happened else 0.0,
        "why": dict(why.most_common()),
    }


def _best(group: list[Counted]) -> UndoKind:
    """The most that any of the calls offered."""
    kinds = {one.undo_kind for one in group}
    return next(kind for kind in ("compensate", "unknown", "none") if kind in kinds)
