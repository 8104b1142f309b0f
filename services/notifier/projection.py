"""What the notifier knows of the journal, and what follows from each event: the feed and the announcements.

All of it happens in the transaction of the inbox: an event is projected, fed and announced once, or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import asyncpg

from notifier import agenda, announcements, broadcasts, feed, outgoing
from notifier.deliveries import telling
from notifier.feed import Transaction
from notifier.remembering import is_remembered
from notifier.review import Known, Run, review
from takeback import json
from takeback.ids import is_valid_id
from takeback.messages.entry import Entry
from takeback.messages.events import (
    AgentChanged,
    ApprovalRequested,
    CampaignOpened,
    EntryData,
    Event,
    MemberChanged,
    ReversalCompleted,
    ReviewAcknowledged,
    RunClosed,
    RunOpened,
)
from takeback.messages.review import Acknowledgement, Deadline, ReviewReady
from takeback.subjects import TYPE_PREFIX

_RUN = "select run, campaign, agent, principal, status from runs where run = $1"
_ENTRY = """
insert into entries (entry, run, campaign, interaction, place, kind, status, view, server, operation, model, undo_kind, undo_by,
    unresolved)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
on conflict (entry) do update set interaction = excluded.interaction, kind = excluded.kind, status = excluded.status,
    view = excluded.view, model = excluded.model, undo_kind = excluded.undo_kind, undo_by = excluded.undo_by,
    unresolved = excluded.unresolved
"""
_ACKNOWLEDGED = "select by_sub, authority, at, entries from acknowledgements"
_SEEN = """
select by_sub, authority, at, entries from (
    select id, by_sub, authority, at, entries from acknowledgements where run = $1
    union all
    select d.id, d.by_sub, d.authority, d.at, array_agg(e.entry order by e.place)
    from decisions d join entries e on e.entry = any(d.entries) where e.run = $1 group by 1, 2, 3, 4
) as seen order by at, id
"""
CAMPAIGNS = "/campaigns/"
"""What an event's source begins with; its campaign follows."""
_RUN_STATUS = {"run.closed": "closed", "run.paused": "paused", "run.resumed": "open"}

Reader: TypeAlias = "asyncpg.Pool[asyncpg.Record] | Transaction"


async def apply(connection: Transaction, event: Event) -> None:
    """Projects *event*, puts it into the feed unless it has been there, and announces what follows from it."""
    short_type = event.type.removeprefix(TYPE_PREFIX)
    changed = await agenda.role_change(connection, short_type, event)
    told = await _project(connection, short_type, event)
    campaign = campaign_of(event)
    wanted = await feed.append_record(connection, campaign, event)
    if wanted is not None:
        await telling.tell(connection, campaign, event, wanted)
        if changed is not None:
            await agenda.note(connection, changed)
    # After the feed: its counter puts the campaign's transactions in order, and windows of one are changed by several.
    await agenda.project(connection, short_type, event)
    if told and wanted is None and not is_remembered(event.time, await connection.fetchval("select clock_timestamp()")):
        told = []
    for announcement in told:
        if await announcements.announce(connection, campaign, announcement):
            await _send(connection, campaign, announcement)


def announces(event: Event) -> bool:
    """Whether `apply` may have announced something that follows from *event*."""
    entry = event.data.get("entry")
    if not isinstance(entry, dict):
        return event.type == f"{TYPE_PREFIX}run.closed"
    return entry["status"] == "reverted" or bool(entry.get("broadcasts"))


async def forget(connection: Transaction, stream: str) -> None:
    """Removes what came from *stream*, a run or a campaign. What was fed and announced stays fed and announced."""
    await agenda.forget(connection, stream)
    for table, column in (
        ("entries", "run"),
        ("runs", "run"),
        ("campaigns", "campaign"),
        ("members", "campaign"),
        ("agents", "campaign"),
        ("acknowledgements", "campaign"),
        ("taken_back", "campaign"),
    ):
        await connection.execute(f"delete from {table} where {column} = $1", stream)  # noqa: S608  names from above


def campaign_of(event: Event) -> str:
    """The campaign that *event* came from, as its source says; raises ValueError for an event of nobody's."""
    campaign = event.source.removeprefix(CAMPAIGNS)
    if campaign == event.source or not is_valid_id(campaign):
        raise ValueError(f"the event {event.id} comes from {event.source!r}, which is no campaign")
    return campaign


async def run_of(connection: Reader, run: str) -> Run | None:
    """The run, when its opening is known."""
    row = await connection.fetchrow(_RUN, run)
    return Run(row["run"], row["campaign"], row["agent"], row["principal"], row["status"]) if row else None


async def changes_of(connection: Reader, run: str) -> list[Entry]:
    """The run's entries in the order of their intents, without its reads: they are most of a long run, and in no review."""
    rows = await connection.fetch("select view from entries where run = $1 and kind <> 'read' order by place", run)
    return [Entry.model_validate(json.loads(row["view"])) for row in rows]


async def known_in(connection: Reader, run: str, entries: Collection[str]) -> set[str]:
    """Those of *entries* that are the run's, reads among them."""
    rows = await connection.fetch("select entry from entries where run = $1 and entry = any($2)", run, list(entries))
    return {row["entry"] for row in rows}


async def acknowledged_in(connection: Reader, run: str) -> list[Acknowledgement]:
    """Who has acknowledged what of the run, or decided a plan with it, in the order of the journal."""
    rows = await connection.fetch(_SEEN, run)
    return [_acknowledgement(row) for row in rows]


async def acknowledgement(connection: Reader, record: str) -> Acknowledgement:
    """The acknowledgement that *record* made, which is known to be there."""
    row = await connection.fetchrow(f"{_ACKNOWLEDGED} where id = $1", record)
    assert row is not None
    return _acknowledgement(row)


async def known_of(connection: Reader, entries: Sequence[Entry], deadlines: Mapping[str, Deadline]) -> Known:
    """What is known of the windows of *entries*, the open ones among which have *deadlines*."""
    names = [entry.id for entry in entries]
    return Known(await agenda.notices(connection, names), await agenda.lapses(connection, names), deadlines)


async def _send(connection: Transaction, campaign: str, event: Event) -> None:
    """The principal of a run that closed hears what can still be taken back, where there is anything (N1)."""
    if event.type == f"{TYPE_PREFIX}review.ready":
        ready = ReviewReady.model_validate(event.data)
        if ready.open:
            await outgoing.enqueue(connection, "review.ready", campaign, ready.principal, event.id, ready.wire())


def _acknowledgement(row: asyncpg.Record) -> Acknowledgement:
    return Acknowledgement(by=row["by_sub"], authority=row["authority"], at=row["at"], entries=row["entries"])


async def _project(connection: Transaction, short_type: str, event: Event) -> list[Event]:
    """Projects *event*; answers what it makes known to everybody."""
    match short_type:
        case "member.changed":
            await _member(connection, MemberChanged.model_validate(event.data))
        case "campaign.opened":
            opened_campaign = CampaignOpened.model_validate(event.data)
            await connection.execute(
                "insert into campaigns (campaign, name) values ($1, $2) "
                "on conflict (campaign) do update set name = excluded.name",
                opened_campaign.campaign,
                opened_campaign.name,
            )
        case "agent.changed":
            agent = AgentChanged.model_validate(event.data)
            await connection.execute(
                "insert into agents (campaign, name) values ($1, $2) on conflict do nothing", agent.campaign, agent.name
            )
        case "run.opened":
            opened = RunOpened.model_validate(event.data)
            await connection.execute(
                "insert into runs (run, campaign, agent, principal, status) values ($1, $2, $3, $4, 'open')",
                opened.run, opened.campaign, opened.agent, opened.principal,
            )  # fmt: skip
        case "run.closed":
            closed = RunClosed.model_validate(event.data)
            await _status(connection, closed.run, short_type, event.time)
            run = await run_of(connection, closed.run)
            assert run is not None
            entries = await changes_of(connection, run.id)
            return [broadcasts.review_ready(review(run, entries, [], event.time), event.time)]
        case "run.paused" | "run.resumed":
            await _status(connection, event.data["stream"], short_type, event.time)
        case "review.acknowledged":
            acknowledged = ReviewAcknowledged.model_validate(event.data)
            await connection.execute(
                "insert into acknowledgements (id, campaign, run, entries, by_sub, authority, at) "
                "values ($1, $2, $3, $4, $5, $6, $7)",
                event.id, acknowledged.campaign, acknowledged.run, acknowledged.entries or [],
                acknowledged.by.sub, acknowledged.by.authority, event.time,
            )  # fmt: skip
        case "reversal.completed":
            completed = ReversalCompleted.model_validate(event.data)
            taken = [receipt.entry for receipt in completed.record.receipts if receipt.outcome == "reverted"]
            await connection.execute(
                "insert into taken_back (entry, campaign, plan, category, at) select unnest($1::text[]), $2, $3, $4, $5 "
                "on conflict (entry) do update set plan = excluded.plan, category = excluded.category, at = excluded.at",
                taken, completed.campaign, completed.plan, completed.record.category, event.time,
            )  # fmt: skip
        case "approval.requested":
            await _keep(connection, ApprovalRequested.model_validate(event.data).entry)
        case _ if short_type.startswith("entry."):
            return await _entry(connection, EntryData.model_validate(event.data).entry, event.time)
    return []


async def _member(connection: Transaction, changed: MemberChanged) -> None:
    if changed.role is None:
        await connection.execute("delete from members where campaign = $1 and sub = $2", changed.campaign, changed.sub)
        return
    await connection.execute(
        "insert into members (campaign, sub, role, email) values ($1, $2, $3, $4) "
        "on conflict (campaign, sub) do update set role = excluded.role, email = excluded.email",
        changed.campaign, changed.sub, changed.role, changed.email,
    )  # fmt: skip


async def _status(connection: Transaction, run: str, short_type: str, at: datetime) -> None:
    closed_at = at if short_type == "run.closed" else None
    await connection.execute(
        "update runs set status = $2, closed_at = $3 where run = $1", run, _RUN_STATUS[short_type], closed_at
    )


async def _entry(connection: Transaction, entry: Entry, at: datetime) -> list[Event]:
    await _keep(connection, entry)
    if entry.status == "reverted":
        return [broadcasts.interaction_reverted(entry, await _is_complete(connection, entry), at)]
    return broadcasts.of_tool(entry, at) if entry.status == "committed" else []


async def _keep(connection: Transaction, entry: Entry) -> None:
    await connection.execute(
        _ENTRY,
        entry.id, entry.run, entry.campaign, entry.interaction, int(entry.label.removeprefix("e")), entry.kind,
        entry.status, json.dumps(entry.wire()), entry.server, entry.operation, entry.model, entry.undo.kind,
        entry.undo.undo_by, bool(entry.unresolved),
    )  # fmt: skip


async def _is_complete(connection: Transaction, entry: Entry) -> bool:
    """Whether the interaction of *entry* is wholly taken back; a call without one stands by itself."""
    if entry.interaction is None:
        return True
    rows = await connection.fetch(
        "select kind, status from entries where campaign = $1 and interaction = $2", entry.campaign, entry.interaction
    )
    return broadcasts.interaction_complete((row["kind"], row["status"]) for row in rows)
