"""What the notifier knows of windows in time: the projection of what the journal says of them, and how it is read (N3, N4).

A window comes from its run's stream; what was delivered, acknowledged, decided and lapsed comes from the campaign's. Each is
kept in its own table, so that either stream can be read again without the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import asyncpg

from notifier.escalation import People, Told
from notifier.feed import Transaction
from notifier.windows import Lapse, Notice, Window, window_of
from takeback import json
from takeback.calendars import Calendars
from takeback.messages.campaign import Reminders
from takeback.messages.entry import Entry
from takeback.messages.events import (
    CalendarChanged,
    EntryData,
    Event,
    MemberChanged,
    PlanDecided,
    PlanProposed,
    PolicyChanged,
    WindowLapsed,
    WindowTold,
)

_OPENED = """
insert into windows (entry, run, campaign, principal, opened_at, undo_by, undo_authority, state)
select $1, $2, $3, $4, $5, $6, $7,
    case when exists (select from lapses where entry = $1 and undo_by = $6) then 'lapsed' else 'open' end
on conflict (entry) do update set principal = excluded.principal, opened_at = excluded.opened_at, undo_by = excluded.undo_by,
    undo_authority = excluded.undo_authority, state = excluded.state, look_at = 'epoch'
"""
_LOOK_AGAIN = "update windows set look_at = 'epoch' where campaign = $1 and state = 'open'"
_NOTICES = """
select entry, kind, recipient, delivered_at from notices where entry = any($1)
union
select told.entry, told.kind, told.recipient, outgoing.accepted_at
from told join outgoing on outgoing.id = told.message
where told.entry = any($1) and told.kind <> 'passed' and outgoing.accepted_at is not null
"""
_TOLD = """
select told.entry, told.undo_by, told.kind, min(outgoing.created_at) as at
from told join outgoing on outgoing.id = told.message where told.entry = any($1) group by 1, 2, 3
"""
_SEEN = """
select unnest(entries) as entry, by_sub, at from acknowledgements where run = any($1)
union all
select unnest(entries), by_sub, at from decisions where entries && $2
"""
_TABLES = (
    ("windows", "run"),
    ("notices", "campaign"),
    ("lapses", "campaign"),
    ("calendars", "campaign"),
    ("reminder_policies", "campaign"),
    ("plans", "campaign"),
    ("decisions", "campaign"),
)

Reader: TypeAlias = "asyncpg.Pool[asyncpg.Record] | Transaction"


@dataclass(frozen=True, slots=True)
class RoleChange:
    """*sub* was *was* in *campaign* and is *role* now, None for somebody who left."""

    id: str
    campaign: str
    sub: str
    was: str
    role: str | None
    by: str
    at: datetime


async def project(connection: Transaction, short_type: str, event: Event) -> None:
    """Writes down what *event* says of windows, of who is on duty, and of what was seen."""
    match short_type:
        case "policy.changed":
            await _policy(connection, PolicyChanged.model_validate(event.data))
        case "calendar.changed":
            calendar = CalendarChanged.model_validate(event.data)
            await connection.execute(
                "insert into calendars values ($1, $2, $3) on conflict (campaign, sub) do update "
                "set calendar = excluded.calendar",
                calendar.campaign, calendar.sub, json.dumps(calendar.calendar),
            )  # fmt: skip
            await connection.execute(_LOOK_AGAIN, calendar.campaign)
        case "member.changed":
            await connection.execute(_LOOK_AGAIN, MemberChanged.model_validate(event.data).campaign)
        case "plan.proposed":
            plan = PlanProposed.model_validate(event.data).plan
            entries = sorted({*plan.targets, *(step.entry for step in plan.steps)})
            await connection.execute(
                "insert into plans values ($1, $2, $3) on conflict do nothing", plan.id, plan.campaign, entries
            )
        case "plan.decided":
            await _decided(connection, event, PlanDecided.model_validate(event.data))
        case "window.reminded" | "window.escalated":
            told = WindowTold.model_validate(event.data)
            await connection.execute(
                "insert into notices values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing",
                event.id, told.campaign, told.entry, told.undo_by,
                "reminder" if short_type == "window.reminded" else "escalation", told.recipient, told.delivered_at,
            )  # fmt: skip
        case "window.lapsed":
            await _lapsed(connection, WindowLapsed.model_validate(event.data))
        case _ if short_type.startswith("entry."):
            await keep(connection, EntryData.model_validate(event.data).entry)


async def keep(connection: Transaction, entry: Entry) -> None:
    """Opens the window of *entry*, or says that there is nothing to take back in it any more."""
    if entry.kind in ("read", "reversal"):
        return
    window = window_of(entry)
    if window is None:
        await connection.execute("update windows set state = 'undone' where entry = $1 and state = 'open'", entry.id)
        return
    await connection.execute(
        _OPENED,
        window.entry, window.run, window.campaign, window.principal, window.opened_at, window.undo_by,
        window.undo_authority,
    )  # fmt: skip


async def forget(connection: Transaction, stream: str) -> None:
    """Removes what came from *stream*. What was told stays told."""
    for table, column in _TABLES:
        await connection.execute(f"delete from {table} where {column} = $1", stream)  # noqa: S608  names from above


async def role_change(connection: Transaction, short_type: str, event: Event) -> RoleChange | None:
    """The role that *event* takes away or changes; to be asked before the projection has forgotten what it was."""
    if short_type != "member.changed":
        return None
    changed = MemberChanged.model_validate(event.data)
    was = await connection.fetchval(
        "select role from members where campaign = $1 and sub = $2", changed.campaign, changed.sub
    )
    if was is None or was == changed.role:
        return None
    return RoleChange(event.id, changed.campaign, changed.sub, was, changed.role, changed.by.sub, event.time)


async def note(connection: Transaction, change: RoleChange) -> None:
    """Has the consequences of *change* told (N9)."""
    await connection.execute(
        "insert into role_changes values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing",
        change.id, change.campaign, change.sub, change.was, change.role, change.by, change.at,
    )  # fmt: skip


def window(row: asyncpg.Record) -> Window:
    """The window in a row of `windows`."""
    return Window(
        row["entry"], row["run"], row["campaign"], row["principal"], row["opened_at"], row["undo_by"],
        row["undo_authority"],
    )  # fmt: skip


async def policies(connection: Reader, campaigns: Collection[str]) -> dict[str, Reminders]:
    """The campaigns' own terms; those without any are not in it."""
    rows = await connection.fetch("select * from reminder_policies where campaign = any($1)", list(campaigns))
    return {
        row["campaign"]: Reminders(
            lead_seconds=row["lead_seconds"],
            escalate_after_seconds=row["escalate_after_seconds"],
            escalate_to=row["escalate_to"],
        )
        for row in rows
    }


async def people(connection: Reader, campaigns: Collection[str], calendars: Calendars) -> dict[str, People]:
    """Who is in each of *campaigns*, and when they are on duty."""
    roles: dict[str, dict[str, str]] = defaultdict(dict)
    for row in await connection.fetch(
        "select campaign, sub, role from members where campaign = any($1)", list(campaigns)
    ):
        roles[row["campaign"]][row["sub"]] = row["role"]
    known: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in await connection.fetch("select * from calendars where campaign = any($1)", list(campaigns)):
        known[row["campaign"]][row["sub"]] = json.loads(row["calendar"])
    return {campaign: People(roles[campaign], calendars.all(known[campaign])) for campaign in campaigns}


async def seen(connection: Transaction, windows: Iterable[Window]) -> dict[str, list[tuple[str, datetime]]]:
    """Who acknowledged each window's entry, or decided a plan with it, and when; in the order of time."""
    windows = list(windows)
    entries = [one.entry for one in windows]
    rows = await connection.fetch(_SEEN, [one.run for one in windows], entries)
    found: dict[str, list[tuple[str, datetime]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["at"]):
        found[row["entry"]].append((row["by_sub"], row["at"]))
    return found


async def told(connection: Transaction, windows: Sequence[Window]) -> dict[str, Told]:
    """What was done about each of *windows*."""
    acknowledged = await seen(connection, windows)
    written: dict[tuple[str, datetime], dict[str, datetime]] = defaultdict(dict)
    for row in await connection.fetch(_TOLD, [one.entry for one in windows]):
        written[row["entry"], row["undo_by"]][row["kind"]] = row["at"]
    return {
        one.entry: Told(
            reminded_at=written[one.entry, one.undo_by].get("reminder"),
            escalated="escalation" in written[one.entry, one.undo_by],
            passed="passed" in written[one.entry, one.undo_by],
            acknowledged=one.entry in acknowledged,
        )
        for one in windows
    }


async def notices(connection: Reader, entries: Collection[str]) -> list[Notice]:
    """What was accepted for somebody about the windows of *entries*: what the journal knows, and what it is yet to hear."""
    return [Notice(**row) for row in await connection.fetch(_NOTICES, list(entries))]


async def lapses(connection: Reader, entries: Collection[str]) -> dict[str, Lapse]:
    """How the windows of *entries* went by, by entry, as far as the journal has it."""
    rows = await connection.fetch(
        "select entry, undo_by, lapsed, acknowledged_by from lapses where entry = any($1)", list(entries)
    )
    return {row["entry"]: Lapse(*row) for row in rows}


async def _policy(connection: Transaction, changed: PolicyChanged) -> None:
    terms = changed.policy.reminders
    if terms is None:
        await connection.execute("delete from reminder_policies where campaign = $1", changed.campaign)
    else:
        await connection.execute(
            "insert into reminder_policies values ($1, $2, $3, $4) on conflict (campaign) do update set "
            "lead_seconds = excluded.lead_seconds, escalate_after_seconds = excluded.escalate_after_seconds, "
            "escalate_to = excluded.escalate_to",
            changed.campaign, terms.lead_seconds, terms.escalate_after_seconds, terms.escalate_to,
        )  # fmt: skip
    await connection.execute(_LOOK_AGAIN, changed.campaign)


async def _decided(connection: Transaction, event: Event, decided: PlanDecided) -> None:
    """Whoever decided a plan has seen its entries: approved, rejected or left out."""
    if decided.by.kind != "human":
        return
    await connection.execute(
        "insert into decisions select $1, $2, entries, $4, $5, $6 from plans where plan = $3 on conflict do nothing",
        event.id, decided.campaign, decided.plan, decided.by.sub, decided.by.authority, event.time,
    )  # fmt: skip


async def _lapsed(connection: Transaction, lapsed: WindowLapsed) -> None:
    await connection.execute(
        "insert into lapses values ($1, $2, $3, $4, $5) on conflict do nothing",
        lapsed.entry, lapsed.undo_by, lapsed.campaign, lapsed.how, lapsed.acknowledged_by,
    )  # fmt: skip
    await connection.execute(
        "update windows set state = 'lapsed' where entry = $1 and undo_by = $2 and state = 'open'",
        lapsed.entry, lapsed.undo_by,
    )  # fmt: skip
