"""Looking at windows when it is time: reminders, escalations, and which windows have lapsed (N3).

Any number of notifiers look side by side. Each takes windows that are due, decides, and writes what is to be told and when to
look again in one transaction: one that dies leaves everything as it was, and another takes it up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import asyncpg
from prometheus_client import Counter, Histogram

from notifier import agenda, outgoing
from notifier.escalation import Step, Terms, step
from notifier.feed import Transaction
from notifier.outgoing import Kind
from notifier.windows import Window
from takeback import json
from takeback.calendars import Calendars

_BATCH = 500
_LAPSE_LEASE = timedelta(seconds=30)
"""How long a window that has lapsed is left to the notifier that is about to say so."""
PER_MESSAGE = 100
"""How many windows one message tells of at most."""
LATENESS = Histogram(
    "takeback_reminder_lateness_seconds",
    "From the time that a reminder was due to the message being written",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 60, 600, 3600, 86400),
)
WRITTEN = Counter("takeback_window_messages_total", "Windows that a message was written about", ["kind"])

_TAKE = """
select *, clock_timestamp() as now from windows where state = 'open' and look_at <= clock_timestamp()
order by look_at limit $1 for update skip locked
"""
_LOOK = """
update windows set look_at = asked.look_at, remind_at = asked.remind_at, escalate_at = asked.escalate_at
from unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[])
    as asked (entry, look_at, remind_at, escalate_at)
where windows.entry = asked.entry
"""
_SOON = "select extract(epoch from min(look_at) - clock_timestamp()) from windows where state = 'open'"
_KINDS: Final[Mapping[str, tuple[Kind, str]]] = {
    "remind": ("window.reminder", "reminder"),
    "escalate": ("window.escalation", "escalation"),
    "lapse": ("window.passed", "passed"),
}


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look found: how many windows were taken, and those that have lapsed and are now this notifier's to say so."""

    taken: int
    lapsed: Sequence[Window]

    @property
    def is_all(self) -> bool:
        """Whether nothing else was due."""
        return self.taken < _BATCH


class Reminding:
    """Looks at what is due, a batch at a time."""

    def __init__(self, pool: asyncpg.Pool, calendars: Calendars) -> None:
        self._pool = pool
        self._calendars = calendars

    async def look(self) -> Looked:
        """Takes the windows that are due and does what their time asks for; what lapsed is left to the caller."""
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(_TAKE, _BATCH)
            if not rows:
                return Looked(0, ())
            windows = [agenda.window(row) for row in rows]
            now: datetime = rows[0]["now"]
            steps = await self._steps(connection, windows, now)
            await self._tell(connection, windows, steps, now)
            await _look_again(connection, windows, steps, now)
        lapsed = [one for one, asked in zip(windows, steps, strict=True) if asked.action == "lapse"]
        return Looked(len(windows), lapsed)

    async def seconds_to_next(self) -> float | None:
        """How long until something is due; None where no window is open."""
        found = await self._pool.fetchval(_SOON)
        return None if found is None else float(found)

    async def _steps(self, connection: Transaction, windows: Sequence[Window], now: datetime) -> list[Step]:
        campaigns = {one.campaign for one in windows}
        policies = await agenda.policies(connection, campaigns)
        people = await agenda.people(connection, campaigns, self._calendars)
        told = await agenda.told(connection, windows)
        return [
            step(one, Terms.of(policies.get(one.campaign), one), people[one.campaign], told[one.entry], now)
            for one in windows
        ]

    async def _tell(
        self, connection: Transaction, windows: Sequence[Window], steps: Sequence[Step], now: datetime
    ) -> None:
        """Writes one message for each reader, kind and campaign, of all the windows that it is about."""
        to_tell: dict[tuple[str, str, str], list[Window]] = defaultdict(list)
        for one, asked in zip(windows, steps, strict=True):
            if asked.action in ("remind", "escalate") or asked.tell_passed:
                for reader in asked.to:
                    to_tell[asked.action, one.campaign, reader].append(one)
                if asked.action == "remind" and asked.remind_at is not None:
                    LATENESS.observe((now - asked.remind_at).total_seconds())
        if not to_tell:
            return
        items = await _items(connection, {one.entry for group in to_tell.values() for one in group})
        for (action, campaign, reader), group in to_tell.items():
            kind, short = _KINDS[action]
            group.sort(key=lambda one: (one.undo_by, one.entry))
            for first in range(0, len(group), PER_MESSAGE):
                part = group[first : first + PER_MESSAGE]
                await _write(connection, kind, short, campaign, reader, part, items)
            WRITTEN.labels(short).inc(len(group))


async def _write(
    connection: Transaction,
    kind: Kind,
    short: str,
    campaign: str,
    reader: str,
    windows: Sequence[Window],
    items: Mapping[str, dict[str, Any]],
) -> None:
    keys = [f"{one.entry} {one.undo_by.isoformat()}" for one in windows]
    message = outgoing.message_id(kind, campaign, reader, *keys)
    payload = {"windows": [items.get(one.entry, {}) | _deadline(one) for one in windows]}
    await outgoing.enqueue(connection, kind, campaign, reader, message, payload)
    await connection.execute(
        "insert into told (entry, undo_by, kind, recipient, message) "
        "select *, $3, $4, $5 from unnest($1::text[], $2::timestamptz[]) on conflict do nothing",
        [one.entry for one in windows], [one.undo_by for one in windows], short, reader, message,
    )  # fmt: skip


async def _items(connection: Transaction, entries: set[str]) -> dict[str, dict[str, Any]]:
    """What a message says of each entry."""
    rows = await connection.fetch("select entry, view from entries where entry = any($1)", list(entries))
    found = {}
    for row in rows:
        view = json.loads(row["view"])
        effect = view.get("effect") or {}
        found[row["entry"]] = {
            "label": view["label"],
            "server": view["server"],
            "operation": view["operation"],
            "resource": effect.get("resource"),
            "agent": view["agent"],
        }
    return found


def _deadline(window: Window) -> dict[str, Any]:
    return {
        "entry": window.entry,
        "run": window.run,
        "principal": window.principal,
        "undoBy": window.undo_by.isoformat(),
    }


async def _look_again(connection: Transaction, windows: Sequence[Window], steps: Sequence[Step], now: datetime) -> None:
    await connection.execute(
        _LOOK,
        [one.entry for one in windows],
        [now + _LAPSE_LEASE if asked.action == "lapse" else asked.look_at for asked in steps],
        [asked.remind_at for asked in steps],
        [asked.escalate_at for asked in steps],
    )
