"""Campaigns and what is set in them: members, agents, policy, calendars. Each change is a record of the campaign's stream."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import asyncpg

from recorder.journal import Idempotency, Journal, NewRecord, Unit
from recorder.kept import standing_for
from recorder.roster import Roster
from recorder.security_log import SecurityLog
from takeback import json
from takeback.auth import Caller
from takeback.calendars import BadCalendar, Calendars, check
from takeback.errors import Problem, human_required, invalid, not_found
from takeback.ids import new_id
from takeback.messages.campaign import (
    AgentRequest,
    CalendarRequest,
    CampaignRequest,
    MemberRequest,
    Policy,
    Role,
    out_of_bounds,
)

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Agent:
    """What an agent may use, and for whom (P10); None means all."""

    name: str
    memory: str
    operations: frozenset[str] | None
    principals: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """What decides a call in a campaign, as of the campaign stream's *version* (its seq)."""

    campaign: str
    version: int
    serialize: str
    policy: Policy
    policy_digest: str
    agents: dict[str, Agent] = field(default_factory=dict)
    roster: Roster | None = None

    def attended_in(self, principal: str, undo_authority: str | None) -> float | None:
        """In how many seconds somebody is on duty who may take a call back (`Roster`); None where nobody has a calendar."""
        return None if self.roster is None else self.roster.attended_in(principal, undo_authority)


class Campaigns:
    """The use cases of a campaign's administration; only owners and only people change it."""

    def __init__(self, pool: asyncpg.Pool, journal: Journal, security: SecurityLog, calendars: Calendars) -> None:
        self._calendars = calendars
        self._pool = pool
        self._journal = journal
        self.security = security
        self._settings: dict[str, CampaignSettings] = {}

    async def open(self, caller: Caller, wanted: CampaignRequest, key: Idempotency | None = None) -> dict[str, Any]:
        """Opens a campaign; the caller, a person or another system, becomes its owner. *key* then stands for it."""
        if caller.kind == "agent":
            raise human_required("open a campaign")
        if len({member.sub for member in wanted.members} | {caller.sub}) != len(wanted.members) + 1:
            raise invalid("A member is named twice, or is yourself: you become owner.")
        campaign = new_id("cmp")
        opened = {"campaign": campaign, "name": wanted.name, "serialize": wanted.serialize, "owner": caller.sub}
        members = [(caller.sub, "owner", None)] + [(m.sub, m.role, m.email) for m in wanted.members]
        records = [_record(campaign, "campaign.opened", opened)] + [
            _record(campaign, "member.changed", _member_body(campaign, caller, *member)) for member in members
        ]
        async with self._journal.transaction() as tx:
            await tx.append(Unit(records, idempotency=standing_for(key, campaign)))
            await tx.execute(
                "insert into campaigns (id, name, serialize, owner) values ($1, $2, $3, $4)",
                campaign, wanted.name, wanted.serialize, caller.sub,
            )  # fmt: skip
            for sub, role, email in members:
                await tx.execute("insert into members values ($1, $2, $3, $4)", campaign, sub, role, email)
        return await self._described(campaign)

    async def of(self, caller: Caller, before: str | None) -> dict[str, Any]:
        """A page of the campaigns that the caller is a member of, newest first, with the caller's role in each."""
        rows = await self._pool.fetch(
            "select c.id, c.name, c.serialize, m.role from members m join campaigns c on c.id = m.campaign"
            " where m.sub = $1 and ($2::text is null or c.id < $2) order by c.id desc limit $3",
            caller.sub, before, _PAGE + 1,
        )  # fmt: skip
        items = [dict(row) for row in rows[:_PAGE]]
        return {"items": items, **({"next": items[-1]["id"]} if len(rows) > _PAGE else {})}

    async def describe(self, campaign: str, caller: Caller) -> dict[str, Any]:
        """The campaign as a member sees it; an agent sees no members' addresses."""
        await self.require(campaign, caller)
        described = await self._described(campaign)
        if caller.kind == "agent":
            described.pop("members")
        return described

    async def role(self, campaign: str, sub: str) -> Role | None:
        """The role that *sub* holds now, None for a stranger."""
        role: Role | None = await self._pool.fetchval(
            "select role from members where campaign = $1 and sub = $2", campaign, sub
        )
        return role

    async def require(self, campaign: str, caller: Caller) -> Role | None:
        """The caller's role; None for an agent that is known by name only. Raises the one 404 for a stranger (G7)."""
        role = await self.role(campaign, caller.sub)
        if role is None and not (caller.kind == "agent" and await self._is_agent(campaign, caller.sub)):
            raise not_found()
        return role

    async def require_owner(self, campaign: str, caller: Caller, what: str) -> None:
        """Raises unless a person who owns the campaign is asking: 404, then `human-required`, then 403 with a log entry."""
        role = await self.require(campaign, caller)
        if not caller.is_human:
            await self.security.write(campaign, caller, what)
            raise human_required(what)
        if role != "owner":
            raise await self.security.refuse(campaign, caller, what)

    async def put_member(self, campaign: str, caller: Caller, sub: str, wanted: MemberRequest) -> dict[str, Any]:
        """Gives *sub* a role; the last owner stays owner."""
        await self.require_owner(campaign, caller, "change members")
        await self._change_member(campaign, caller, sub, wanted.role, wanted.email)
        return {"sub": sub, "role": wanted.role, "email": wanted.email}

    async def remove_member(self, campaign: str, caller: Caller, sub: str) -> None:
        """Takes *sub* out of the campaign; the last owner stays."""
        await self.require_owner(campaign, caller, "change members")
        if await self.role(campaign, sub) is None:
            raise not_found()
        await self._change_member(campaign, caller, sub, None, None)

    async def put_agent(self, campaign: str, caller: Caller, name: str, wanted: AgentRequest) -> dict[str, Any]:
        """Sets what the agent *name* may use and for whom (P10), and whether its memory is visible here (G4)."""
        await self.require_owner(campaign, caller, "change agents")
        body = {"campaign": campaign, "name": name, **wanted.wire(), "by": _actor(caller)}
        async with self._journal.transaction() as tx:
            await tx.append(Unit(records=[_record(campaign, "agent.changed", body)]))
            await tx.execute(
                "insert into agents values ($1, $2, $3, $4, $5) on conflict (campaign, name) do update"
                " set memory = excluded.memory, operations = excluded.operations, principals = excluded.principals",
                campaign, name, wanted.memory, _json_or_null(wanted.operations), _json_or_null(wanted.principals),
            )  # fmt: skip
        return {"name": name, **wanted.wire()}

    async def put_policy(self, campaign: str, caller: Caller, wanted: Policy) -> dict[str, Any]:
        """Replaces the policy. It holds for calls from now on; entries that exist stay as they are (J9)."""
        await self.require_owner(campaign, caller, "change the policy")
        if wrong := out_of_bounds(wanted):
            raise invalid(f"The policy is not one that can be held to: {'; '.join(wrong)}.")
        if wanted.money is not None:
            raise no_caps("money")
        body = {"campaign": campaign, "policy": wanted.wire(), "by": _actor(caller)}
        async with self._journal.transaction() as tx:
            await tx.append(Unit(records=[_record(campaign, "policy.changed", body)]))
            await tx.execute(
                "insert into policies (campaign, policy, digest, changed_by) values ($1, $2, $3, $4)"
                " on conflict (campaign) do update set policy = excluded.policy, digest = excluded.digest,"
                " changed_by = excluded.changed_by, changed_at = now()",
                campaign, json.dumps(wanted.wire()).decode(), policy_digest(wanted), caller.sub,
            )  # fmt: skip
        return wanted.wire()

    async def policy(self, campaign: str, caller: Caller) -> dict[str, Any]:
        """The policy, for people and systems; an agent never reads it (J16, P10)."""
        await self.require(campaign, caller)
        if caller.kind == "agent":
            await self.security.write(campaign, caller, "read the policy")
            raise human_required("read the policy")
        return (await _read_policy(self._pool, campaign)).wire()

    async def put_calendar(self, campaign: str, caller: Caller, sub: str, wanted: CalendarRequest) -> dict[str, Any]:
        """Sets when *sub* is on duty (P3); themselves, or an owner for them."""
        await self.require(campaign, caller)
        if not (caller.is_human and caller.sub == sub):
            await self.require_owner(campaign, caller, "change somebody's calendar")
        calendar = wanted.wire()
        try:
            check(calendar)
        except BadCalendar as error:
            raise invalid(f"{error}.") from error
        body = {"campaign": campaign, "sub": sub, "calendar": calendar, "by": _actor(caller)}
        async with self._journal.transaction() as tx:
            await tx.append(Unit(records=[_record(campaign, "calendar.changed", body)]))
            await tx.execute(
                "insert into calendars values ($1, $2, $3)"
                " on conflict (campaign, sub) do update set calendar = excluded.calendar",
                campaign, sub, json.dumps(calendar).decode(),
            )  # fmt: skip
        return calendar

    async def security_page(self, campaign: str, caller: Caller, before: int | None) -> dict[str, Any]:
        """A page of the security log, for owners."""
        await self.require_owner(campaign, caller, "read the security log")
        return await self.security.read(campaign, before)

    async def settings(self, campaign: str, version: int) -> CampaignSettings:
        """What decides a call, as of *version* (the campaign stream's seq) or later; kept while that does not move."""
        kept = self._settings.get(campaign)
        if kept is not None and kept.version == version:
            return kept
        async with (
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            row = await connection.fetchrow(
                "select c.serialize, s.seq from campaigns c join streams s on s.stream = c.id where c.id = $1", campaign
            )
            if row is None:
                raise not_found()
            agents = await connection.fetch("select * from agents where campaign = $1", campaign)
            policy = await _read_policy(connection, campaign)
            roster = await self._roster(connection, campaign)
        if roster is not None:
            await roster.calendars.meet(roster.documents.values())
        settings = CampaignSettings(
            campaign,
            row["seq"],
            row["serialize"],
            policy,
            policy_digest(policy),
            {agent["name"]: _agent(agent) for agent in agents},
            roster,
        )
        self._settings[campaign] = settings
        return settings

    async def _roster(self, connection: asyncpg.pool.PoolConnectionProxy, campaign: str) -> Roster | None:
        """Who is on duty when, where somebody has said so."""
        rows = await connection.fetch("select sub, calendar from calendars where campaign = $1", campaign)
        if not rows:
            return None
        members = await connection.fetch("select sub, role from members where campaign = $1", campaign)
        ahead = await connection.fetchval("select clock_timestamp()") - datetime.now(UTC)
        documents = {row["sub"]: json.loads(row["calendar"]) for row in rows}
        return Roster(
            {row["sub"]: row["role"] for row in members}, documents, self._calendars, lambda: datetime.now(UTC) + ahead
        )

    async def _change_member(
        self, campaign: str, caller: Caller, sub: str, role: Role | None, email: str | None
    ) -> None:
        async with self._journal.transaction() as tx:
            # The append locks the campaign's stream, so that two owners cannot both step down as "not the last".
            body = _member_body(campaign, caller, sub, role, email)
            await tx.append(Unit(records=[_record(campaign, "member.changed", body)]))
            if role is None:
                await tx.execute("delete from members where campaign = $1 and sub = $2", campaign, sub)
            else:
                await tx.execute(
                    "insert into members values ($1, $2, $3, $4) on conflict (campaign, sub) do update"
                    " set role = excluded.role, email = coalesce(excluded.email, members.email)",
                    campaign, sub, role, email,
                )  # fmt: skip
            if not await tx.fetchval(
                "select exists (select from members where campaign = $1 and role = 'owner')", campaign
            ):
                raise Problem(
                    409,
                    "last-owner",
                    "The campaign would have no owner. Nothing was changed; name another owner first.",
                )

    async def _described(self, campaign: str) -> dict[str, Any]:
        row = await self._pool.fetchrow("select id, name, serialize from campaigns where id = $1", campaign)
        if row is None:
            raise not_found()
        members = await self._pool.fetch(
            "select sub, role, email from members where campaign = $1 order by sub", campaign
        )
        agents = await self._pool.fetch("select * from agents where campaign = $1 order by name", campaign)
        servers = await self._pool.fetch("select name from servers where campaign = $1 order by name", campaign)
        return {
            **dict(row),
            "members": [dict(member) for member in members],
            "agents": [{"name": agent["name"], "memory": agent["memory"]} for agent in agents],
            "servers": [server["name"] for server in servers],
        }

    async def _is_agent(self, campaign: str, name: str) -> bool:
        return bool(
            await self._pool.fetchval(
                "select exists (select from agents where campaign = $1 and name = $2)", campaign, name
            )
        )


def no_caps(field: str) -> Problem:
    """The refusal of a cap on what may be spent (P5): one that is kept and not held to would be trusted."""
    return Problem(
        422,
        "no-caps",
        f"This release does not hold calls to caps on money, so it takes none ({field}). Nothing was changed; leave it out, and"
        " let the policy ask for the operations that spend.",
    )


def policy_digest(policy: Policy) -> str:
    """What names a policy in the entries that it decided."""
    return hashlib.sha256(json.dumps(policy.wire())).hexdigest()


async def _read_policy(source: asyncpg.Pool | asyncpg.pool.PoolConnectionProxy, campaign: str) -> Policy:
    kept = await source.fetchval("select policy from policies where campaign = $1", campaign)
    return Policy.model_validate(json.loads(kept)) if kept else Policy()


def _actor(caller: Caller) -> dict[str, str]:
    return {"sub": caller.sub, "kind": caller.kind}


def _record(campaign: str, record_type: str, body: dict[str, Any]) -> NewRecord:
    return NewRecord(
        stream=campaign,
        campaign=campaign,
        kind="campaign",
        id=new_id("rec"),
        type=record_type,
        body=json.dumps(body),
        published=True,
    )


def _member_body(campaign: str, caller: Caller, sub: str, role: str | None, email: str | None) -> dict[str, Any]:
    return {"campaign": campaign, "sub": sub, "role": role, "email": email, "by": _actor(caller)}


def _agent(row: asyncpg.Record) -> Agent:
    operations, principals = row["operations"], row["principals"]
    return Agent(
        row["name"],
        row["memory"],
        None if operations is None else frozenset(json.loads(operations)),
        None if principals is None else frozenset(json.loads(principals)),
    )


def _json_or_null(value: list[str] | None) -> str | None:
    return None if value is None else json.dumps(value).decode()
