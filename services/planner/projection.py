"""What each event of the journal changes in the planner's tables; the inbox calls it in its transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from takeback import json
from takeback.inbox import short_type
from takeback.messages.entry import Entry
from takeback.messages.events import (
    AgentChanged,
    ApprovalDecided,
    ApprovalRequested,
    CampaignOpened,
    EntryData,
    Event,
    LinkConfirmed,
    MemberChanged,
    PlanProposed,
    RunOpened,
)

Connection = Any

# An asked call has no place among what happened until it was forwarded.
_PUT_ENTRY = """
with entry as (
    insert into entries (entry, campaign, run, seq, at, interaction, kind, status, agent, data)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    on conflict (entry) do update set
        seq = case when entries.status = 'awaiting_approval' then excluded.seq else entries.seq end,
        at = case when entries.status = 'awaiting_approval' then excluded.at else entries.at end,
        kind = excluded.kind, status = excluded.status, agent = excluded.agent, data = excluded.data),
resources as (
    insert into entry_resources (campaign, resource, entry) select $2, unnest($11::text[]), $1 on conflict do nothing)
insert into entry_values (campaign, hash, entry) select $2, unnest($12::text[]), $1 on conflict do nothing
"""
_PUT_MEMBER = """
insert into members (campaign, sub, role) values ($1, $2, $3)
on conflict (campaign, sub) do update set role = excluded.role
"""
_PUT_AGENT = """
insert into agents (campaign, name, memory) values ($1, $2, $3)
on conflict (campaign, name) do update set memory = excluded.memory
"""


async def apply(connection: Connection, event: Event) -> None:
    """Writes what *event* says; a type that the planner does not need changes nothing."""
    writer = _WRITERS.get(short_type(event))
    if writer is not None:
        await writer(connection, event)


async def forget(connection: Connection, stream: str) -> None:
    """Removes all that came from *stream*, which is a run's or a campaign's id."""
    await connection.execute("delete from entries where run = $1", stream)
    await connection.execute("delete from runs where run = $1", stream)
    for table in ("members", "agents", "confirmations"):
        await connection.execute(f"delete from {table} where campaign = $1", stream)  # noqa: S608  names from above
    await connection.execute("delete from plan_facts where stream = $1", stream)
    await connection.execute("delete from plan_targets where stream = $1", stream)


async def _campaign_opened(connection: Connection, event: Event) -> None:
    data = CampaignOpened.model_validate(event.data)
    await connection.execute(_PUT_MEMBER, data.campaign, data.owner, "owner")


async def _member_changed(connection: Connection, event: Event) -> None:
    data = MemberChanged.model_validate(event.data)
    if data.role is None:
        await connection.execute("delete from members where campaign = $1 and sub = $2", data.campaign, data.sub)
    else:
        await connection.execute(_PUT_MEMBER, data.campaign, data.sub, data.role)


async def _agent_changed(connection: Connection, event: Event) -> None:
    data = AgentChanged.model_validate(event.data)
    await connection.execute(_PUT_AGENT, data.campaign, data.name, data.memory)


async def _run_opened(connection: Connection, event: Event) -> None:
    data = RunOpened.model_validate(event.data)
    await connection.execute(
        "insert into runs (run, campaign, agent, principal) values ($1, $2, $3, $4) on conflict do nothing",
        data.run, data.campaign, data.agent, data.principal,
    )  # fmt: skip


async def _entry(connection: Connection, event: Event) -> None:
    await _put_entry(connection, event, EntryData.model_validate(event.data))


async def _approval_requested(connection: Connection, event: Event) -> None:
    data = ApprovalRequested.model_validate(event.data)
    await _put_entry(connection, event, EntryData.model_validate({**event.data, "entry": data.entry}))


async def _approval_decided(connection: Connection, event: Event) -> None:
    """An approval that expired has no other record: the entry says so from here on."""
    data = ApprovalDecided.model_validate(event.data)
    if data.decision != "expire":
        return
    row = await connection.fetchrow("select data from entries where entry = $1", data.entry)
    if row is not None:
        known = json.loads(row["data"])
        known["entry"]["status"] = "expired"
        await connection.execute(
            "update entries set status = 'expired', data = $2 where entry = $1",
            data.entry, json.dumps(known).decode(),
        )  # fmt: skip


async def _put_entry(connection: Connection, event: Event, data: EntryData) -> None:
    entry = data.entry
    known = {
        "entry": entry.wire(),
        "host": data.host.wire(),
        "matchable": data.matchable.wire(),
        "resources": [item.wire() for item in data.resources],
    }
    await connection.execute(
        _PUT_ENTRY,
        entry.id, entry.campaign, entry.run, data.seq, event.time, entry.interaction, entry.kind, entry.status, entry.agent,
        json.dumps(known).decode(), _resources(entry, data), data.matchable.arguments,
    )  # fmt: skip


def _resources(entry: Entry, data: EntryData) -> list[str]:
    effects = entry.effects or ([entry.effect] if entry.effect is not None else [])
    named = [item.resource for item in data.resources] + list(data.host.uses)
    for effect in effects:
        named += [effect.resource] if effect.resource is not None else []
        named += effect.uses
    return list(dict.fromkeys(named))


async def _link_confirmed(connection: Connection, event: Event) -> None:
    data = LinkConfirmed.model_validate(event.data)
    # The first word counts: who confirmed it and when does not change by saying it again.
    await connection.execute(
        "insert into confirmations (link, campaign, entry, depends_on, by_sub, at) values ($1, $2, $3, $4, $5, $6) "
        "on conflict do nothing",
        data.link, data.campaign, data.entry, data.depends_on, data.by.sub, event.time,
    )  # fmt: skip


async def _plan_proposed(connection: Connection, event: Event) -> None:
    plan = PlanProposed.model_validate(event.data).plan
    await _put_plan_fact(connection, event, plan.id, plan.campaign)
    for target in plan.targets:
        await connection.execute(
            "insert into plan_targets (entry, plan, stream) values ($1, $2, $3) on conflict do nothing",
            target, plan.id, event.data["stream"],
        )  # fmt: skip


async def _about_plan(connection: Connection, event: Event) -> None:
    await _put_plan_fact(connection, event, event.data["plan"], event.data["campaign"])


async def _put_plan_fact(connection: Connection, event: Event, plan: str, campaign: str) -> None:
    await connection.execute(
        "insert into plan_facts (plan, stream, seq, campaign, type, supersedes, at, data) "
        "values ($1, $2, $3, $4, $5, $6, $7, $8)",
        plan, event.data["stream"], event.data["seq"], campaign, short_type(event), event.data.get("supersedes"), event.time,
        json.dumps(event.data).decode(),
    )  # fmt: skip


_WRITERS: Mapping[str, Callable[[Connection, Event], Awaitable[None]]] = {
    "campaign.opened": _campaign_opened,
    "member.changed": _member_changed,
    "agent.changed": _agent_changed,
    "run.opened": _run_opened,
    "entry.committed": _entry,
    "entry.failed": _entry,
    "entry.in_doubt": _entry,
    "entry.denied": _entry,
    "entry.reverted": _entry,
    "entry.remedied": _entry,
    "approval.requested": _approval_requested,
    "approval.decided": _approval_decided,
    "link.confirmed": _link_confirmed,
    "plan.proposed": _plan_proposed,
    "plan.decided": _about_plan,
    "reversal.step": _about_plan,
    "reversal.completed": _about_plan,
}
