"""How fast reviews really happen, and which `minWindowSeconds` follows from it (N8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from math import ceil

import asyncpg

from notifier.reviews import Reviews
from takeback.auth import Caller
from takeback.messages.speeds import ReviewSpeed, ReviewSpeeds, Suggestion

SHARE = 0.95
"""The suggestion is the time within which this share of the reviews happened."""
_REVIEWED = """
with seen as (
    select run, by_sub, at from acknowledgements where campaign = $1
    union all
    select entries.run, decisions.by_sub, decisions.at
    from decisions join entries on entries.entry = any(decisions.entries) where decisions.campaign = $1
)
select runs.run, seen.by_sub, extract(epoch from min(seen.at) - runs.closed_at)::float8 as seconds
from runs join seen on seen.run = runs.run
where runs.campaign = $1 and runs.closed_at is not null group by runs.run, seen.by_sub
"""
_CLOSED = """
select count(*) from runs where campaign = $1 and closed_at is not null
    and exists (select from windows where windows.run = runs.run)
"""
_WINDOWS = """
select extract(epoch from undo_by - opened_at)::float8 as seconds, count(*) as windows,
    count(*) filter (where state = 'lapsed' and not exists (
        select from lapses where lapses.entry = windows.entry and lapsed = 'after_acknowledgement')) as missed
from windows where campaign = $1 group by 1
"""


class Measuring:
    """For members of the campaign; an answer stands on everything that was acknowledged before it was asked for."""

    def __init__(self, pool: asyncpg.Pool, reviews: Reviews) -> None:
        self._pool = pool
        self._reviews = reviews

    async def speeds(self, campaign: str, caller: Caller) -> ReviewSpeeds:
        """From a run's close to the first time that somebody acknowledged or decided something of it, by person and in all."""
        await self._reviews.enter(campaign, caller)
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            at: datetime = await connection.fetchval("select clock_timestamp()")
            reviewed = await connection.fetch(_REVIEWED, campaign)
            closed: int = await connection.fetchval(_CLOSED, campaign)
            rows = await connection.fetch(_WINDOWS, campaign)
        windows = [(row["seconds"], row["windows"], row["missed"]) for row in rows]
        first: dict[str, float] = {}
        by_person: dict[str, list[float]] = defaultdict(list)
        for row in reviewed:
            seconds = max(0.0, row["seconds"])  # whoever looked before the run closed was there at once
            by_person[row["by_sub"]].append(seconds)
            first[row["run"]] = min(seconds, first.get(row["run"], seconds))
        return ReviewSpeeds(
            campaign=campaign,
            as_of=at,
            closed_runs=closed,
            reviewed_runs=len(first),
            all=speed(None, list(first.values()), windows),
            people=[speed(sub, observed, windows) for sub, observed in sorted(by_person.items())],
        )


def speed(sub: str | None, observed: Sequence[float], windows: Sequence[tuple[float, int, int]]) -> ReviewSpeed:
    """What *observed* times, in seconds, say; *windows*: (seconds, how many of that length, how many of those were missed)."""
    if not observed:
        return ReviewSpeed(sub=sub, reviews=0)
    suggested = ceil(quantile(observed, SHARE))
    total = sum(count for _, count, _ in windows)
    missed = sum(lost for _, _, lost in windows)
    caught = [(count, lost) for seconds, count, lost in windows if seconds < suggested]
    return ReviewSpeed(
        sub=sub,
        reviews=len(observed),
        median_seconds=quantile(observed, 0.5),
        p95_seconds=quantile(observed, SHARE),
        suggestion=Suggestion(
            min_window_seconds=suggested,
            windows=total,
            caught=sum(count for count, _ in caught),
            share=_share(sum(count for count, _ in caught), total),
            missed=missed,
            missed_caught=sum(lost for _, lost in caught),
            missed_share=_share(sum(lost for _, lost in caught), missed),
        ),
    )


def quantile(observed: Sequence[float], share: float) -> float:
    """The smallest observed value within which *share* of them lie."""
    ordered = sorted(observed)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
