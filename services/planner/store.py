"""Reading the planner's projection: roles, entries as facts, what else touched a record, confirmations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import asyncpg

from planner.fact import Fact
from planner.links import Confirmation
from takeback import json
from takeback.auth import Caller
from takeback.errors import not_found
from takeback.messages.campaign import Memory, Role
from takeback.messages.entry import Entry
from takeback.messages.events import EntryResource, HostLinks, Matchable

_FACT = "select e.entry, e.seq, e.at, e.data from entries e"
_RELATED = f"""
{_FACT} where e.campaign = $1 and e.at >= $4 and e.entry in (
    select entry from entry_resources where campaign = $1 and resource = any($2)
    union select entry from entry_values where campaign = $1 and hash = any($3)
) order by e.at desc, e.run, e.seq desc limit $5
"""  # noqa: S608  constants
# What is skipped is counted in the index alone: the entries themselves are large.
_WITHIN = f"""
{_FACT} where e.campaign = $1 and e.run = $2
    and e.seq >= (select seq from entries where run = $2 order by seq offset $3 limit 1) order by e.seq limit $4
"""  # noqa: S608
_ACTIVE = """
select distinct e.agent, coalesce(a.memory, 'unknown') as memory
from entries e left join agents a on a.campaign = e.campaign and a.name = e.agent where e.campaign = $1 and e.at >= $2
"""
_PLAN_FACTS = """
select type, data, exists (select from plan_facts where supersedes = $1) as superseded
from plan_facts where plan = $1 order by stream, seq
"""
# The newest that may stand in one plan as readers: they inform, they are no steps.
_MOST = 2000


class Store:
    """Queries on the projection; each answers values, none changes anything."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def role(self, campaign: str, sub: str) -> Role | None:
        """What *sub* holds in *campaign*, None for somebody who is not a member."""
        role: Role | None = await self._pool.fetchval(
            "select role from members where campaign = $1 and sub = $2", campaign, sub
        )
        return role

    async def require(self, campaign: str | None, caller: Caller) -> Role | None:
        """The caller's role; None for an agent that the campaign names. Raises the one 404 for everybody else (G7)."""
        if campaign is None:
            raise not_found()
        role = await self.role(campaign, caller.sub)
        if role is None and not (caller.kind == "agent" and await self._is_agent(campaign, caller.sub)):
            raise not_found()
        return role

    async def campaign_of_run(self, run: str) -> str | None:
        """The campaign of *run*, None when it is not known."""
        campaign: str | None = await self._pool.fetchval("select campaign from runs where run = $1", run)
        return campaign

    async def campaign_of_entry(self, entry: str) -> str | None:
        """The campaign of *entry*, None when it is not known."""
        campaign: str | None = await self._pool.fetchval("select campaign from entries where entry = $1", entry)
        return campaign

    async def facts(self, campaign: str, entries: Iterable[str]) -> list[Fact]:
        """Those of *entries* that are in *campaign*."""
        return _facts(
            await self._pool.fetch(f"{_FACT} where e.campaign = $1 and e.entry = any($2)", campaign, list(entries))
        )

    async def facts_of_run(self, campaign: str, run: str, from_seq: int = 0) -> list[Fact]:
        """The entries of *run*, those from *from_seq* on."""
        return _facts(
            await self._pool.fetch(
                f"{_FACT} where e.campaign = $1 and e.run = $2 and e.seq >= $3", campaign, run, from_seq
            )
        )

    async def facts_within_run(self, campaign: str, run: str, skip: int, limit: int) -> list[Fact]:
        """At most *limit* entries of *run*, without the first *skip*, in the order of what happened."""
        return _facts(await self._pool.fetch(_WITHIN, campaign, run, skip, limit))

    async def facts_of_interaction(self, campaign: str, interaction: str) -> list[Fact]:
        """All entries of *interaction*."""
        return _facts(
            await self._pool.fetch(f"{_FACT} where e.campaign = $1 and e.interaction = $2", campaign, interaction)
        )

    async def latest_interaction(self, campaign: str) -> str | None:
        """The interaction of the newest call that was ever committed, reverted or not."""
        interaction: str | None = await self._pool.fetchval(
            "select interaction from entries where campaign = $1 and interaction is not null "
            "and kind not in ('read', 'reversal') and status in ('committed', 'reverting', 'reverted') "
            "order by at desc, seq desc limit 1",
            campaign,
        )
        return interaction

    async def related(
        self, campaign: str, resources: Sequence[str], values: Sequence[str], since: datetime
    ) -> list[Fact]:
        """Entries of *campaign* from *since* on that touched one of *resources* or carried one of *values* as an argument."""
        return _facts(await self._pool.fetch(_RELATED, campaign, list(resources), list(values), since, _MOST))

    async def active_agents(self, campaign: str, since: datetime) -> dict[str, Memory]:
        """The agents that did something in *campaign* at *since* or later; whether their memory passes through the recorder.

        As the campaign says; "unknown" where it says nothing of them.
        """
        rows = await self._pool.fetch(_ACTIVE, campaign, since)
        return {row["agent"]: row["memory"] for row in rows}

    async def confirmations(self, entries: Iterable[str]) -> list[Confirmation]:
        """What people confirmed about links of *entries*."""
        rows = await self._pool.fetch(
            "select link, entry, depends_on, by_sub, at from confirmations where entry = any($1) order by link",
            list(entries),
        )
        return [Confirmation(row["link"], row["entry"], row["depends_on"], row["by_sub"], row["at"]) for row in rows]

    async def campaign_of_plan(self, plan: str) -> str | None:
        """The campaign of *plan*, None when it is not known."""
        campaign: str | None = await self._pool.fetchval(
            "select campaign from plan_facts where plan = $1 limit 1", plan
        )
        return campaign

    async def plan_facts(self, plan: str) -> tuple[list[Any], bool]:
        """What was said about *plan*, in the order of each stream; and whether a fresh one was made in its place."""
        rows = await self._pool.fetch(_PLAN_FACTS, plan)
        facts = [{"type": row["type"], "data": json.loads(row["data"])} for row in rows]
        return facts, any(row["superseded"] for row in rows)

    async def plans_under_way(self, entries: Sequence[str]) -> list[str]:
        """Approved plans with one of *entries* among their targets whose reversal has not ended."""
        rows = await self._pool.fetch(
            "select distinct t.plan from plan_targets t join plan_facts d on d.plan = t.plan and d.type = 'plan.decided' "
            "and d.data::jsonb ->> 'decision' = 'approve' where t.entry = any($1) "
            "and not exists (select from plan_facts c where c.plan = t.plan and c.type = 'reversal.completed') order by t.plan",
            list(entries),
        )
        return [row["plan"] for row in rows]

    async def _is_agent(self, campaign: str, name: str) -> bool:
        found: bool = await self._pool.fetchval(
            "select exists (select from agents where campaign = $1 and name = $2)", campaign, name
        )
        return found


def _facts(rows: Sequence[Any]) -> list[Fact]:
    return [_fact(row) for row in rows]


def _fact(row: Any) -> Fact:
    data = json.loads(row["data"])
    return Fact(
        entry=Entry.model_validate(data["entry"]),
        seq=row["seq"],
        at=row["at"],
        host=HostLinks.model_validate(data["host"]),
        matchable=Matchable.model_validate(data["matchable"]),
        resources=[EntryResource.model_validate(item) for item in data["resources"]],
    )
