"""Runs: one agent at work for one principal. Opened, paused and closed by records of the run's own stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import asyncpg

from recorder.campaigns import Campaigns, no_caps
from recorder.journal import Idempotency, Journal, NewRecord, Unit
from recorder.kept import standing_for
from takeback import json
from takeback.auth import Caller
from takeback.errors import Problem, human_required, invalid, not_found
from takeback.ids import new_id
from takeback.messages.campaign import RunRequest

RUN = """
select q.n, r.id, r.campaign, r.agent, r.model, r.principal, r.opened_by, r.opened_at, r.closed_at,
       s.status, c.seq as campaign_version, m.role,
       exists (select from approvals a where a.run = r.id and a.fetched_at is null) as unfetched
from unnest($1::integer[], $2::text[], $3::text[]) as q (n, run, sub)
join runs r on r.id = q.run
join streams s on s.stream = r.id
join streams c on c.stream = r.campaign
left join members m on m.campaign = r.campaign and m.sub = q.sub
"""
"""Runs as their callers meet them: questions by number, run and the caller's sub."""

_PAGE = 100
_CHANGES = {"run.closed": ("open", "paused"), "run.paused": ("open",), "run.resumed": ("paused",)}
"""In which state of a run each change can happen."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as one caller meets it. *campaign_version* says which settings hold now; *role* is the caller's.

    *unfetched*: a call of it was put to a person, and its answer has not been fetched yet (S13).
    """

    id: str
    campaign: str
    agent: str
    model: str
    principal: str
    opened_by: str
    opened_at: Any
    closed_at: Any
    status: Literal["open", "paused", "closed"]
    campaign_version: int
    role: str | None
    unfetched: bool = False

    def lets_call(self, caller: Caller) -> bool:
        """Whether *caller* may call in it at all: an agent that opened it, a person whose run it is, or any service."""
        if caller.kind == "agent":
            return self.opened_by == caller.sub
        if caller.kind == "human":
            return caller.sub in (self.opened_by, self.principal) or self.role == "owner"
        return True

    def described(self) -> dict[str, Any]:
        """The run on the wire."""
        return {
            "id": self.id,
            "campaign": self.campaign,
            "agent": self.agent,
            "model": self.model,
            "principal": self.principal,
            "status": self.status,
            "openedBy": self.opened_by,
            "openedAt": self.opened_at,
            "closedAt": self.closed_at,
            "worstCase": None,
        }


class Runs:
    """The use cases of a run's life."""

    def __init__(self, pool: asyncpg.Pool, journal: Journal, campaigns: Campaigns) -> None:
        self._pool = pool
        self._journal = journal
        self._campaigns = campaigns

    async def get(self, run: str, caller: Caller) -> RunRow:
        """The run, in one query; raises the one 404 when there is none or the caller is a stranger to its campaign (G7)."""
        return await self.met(await self._pool.fetchrow(RUN, [0], [run], [caller.sub]), caller)

    async def met(self, row: asyncpg.Record | None, caller: Caller) -> RunRow:
        """The run in a row of `RUN`; refuses like `get`."""
        if row is None:
            raise not_found()
        found = RunRow(*tuple(row)[1:])
        if found.role is None:
            settings = await self._campaigns.settings(found.campaign, found.campaign_version)
            if caller.kind != "agent" or caller.sub not in settings.agents:
                raise not_found()
        return found

    async def page(self, campaign: str, caller: Caller, before: str | None) -> dict[str, Any]:
        """A page of the campaign's runs, newest first."""
        await self._campaigns.require(campaign, caller)
        rows = await self._pool.fetch(
            "select r.id, r.campaign, r.agent, r.model, r.principal, s.status, r.opened_by as \"openedBy\","
            " r.opened_at as \"openedAt\", r.closed_at as \"closedAt\" from runs r join streams s on s.stream = r.id"
            " where r.campaign = $1 and ($2::text is null or r.id < $2) order by r.id desc limit $3",
            campaign, before, _PAGE + 1,
        )  # fmt: skip
        items = [dict(row) for row in rows[:_PAGE]]
        return {"items": items, **({"next": items[-1]["id"]} if len(rows) > _PAGE else {})}

    async def open(
        self, campaign: str, caller: Caller, wanted: RunRequest, key: Idempotency | None = None
    ) -> dict[str, Any]:
        """Opens a run for *principal*, who must be a member; an agent only under its own name and for its principals.

        *key* then stands for it.
        """
        await self._campaigns.require(campaign, caller)
        if await self._campaigns.role(campaign, wanted.principal) is None:
            raise invalid(f"The principal {wanted.principal} is not a member of this campaign.")
        await self._check_agent(campaign, caller, wanted)
        if wanted.money_cap is not None:
            raise no_caps("moneyCap")
        run = new_id("run")
        body = {
            "run": run,
            "campaign": campaign,
            "agent": wanted.agent,
            "model": wanted.model,
            "principal": wanted.principal,
            "by": {"sub": caller.sub, "kind": caller.kind},
        }
        async with self._journal.transaction() as tx:
            await tx.append(Unit([_record(run, campaign, "run.opened", body)], idempotency=standing_for(key, run)))
            await tx.execute(
                "insert into runs (id, campaign, agent, model, principal, opened_by, opened_by_kind)"
                " values ($1, $2, $3, $4, $5, $6, $7)",
                run, campaign, wanted.agent, wanted.model, wanted.principal, caller.sub, caller.kind,
            )  # fmt: skip
        return await self.described(run, caller)

    async def described(self, run: str, caller: Caller) -> dict[str, Any]:
        """The run on the wire; refuses like `get`."""
        return (await self.get(run, caller)).described()

    async def close(self, run: str, caller: Caller, key: Idempotency | None = None) -> dict[str, Any]:
        """Closes the run: no more calls; its review goes out (N1). Closing it twice says so."""
        found = await self.get(run, caller)
        if not (caller.sub in (found.opened_by, found.principal) or found.role in ("owner", "approver")):
            raise await self._campaigns.security.refuse(found.campaign, caller, "close this run")
        return await self._change(found, caller, "run.closed", key)

    async def pause(self, run: str, caller: Caller, key: Idempotency | None = None) -> dict[str, Any]:
        """Holds the run still: its calls are refused until it is resumed (a plan can then be made in peace)."""
        return await self._change(await self._governed(run, caller, "pause"), caller, "run.paused", key)

    async def resume(self, run: str, caller: Caller, key: Idempotency | None = None) -> dict[str, Any]:
        """Lets a paused run go on."""
        return await self._change(await self._governed(run, caller, "resume"), caller, "run.resumed", key)

    async def _governed(self, run: str, caller: Caller, what: str) -> RunRow:
        found = await self.get(run, caller)
        if not caller.is_human:
            raise human_required(f"{what} a run")
        if not (caller.sub == found.principal or found.role == "owner"):
            raise await self._campaigns.security.refuse(found.campaign, caller, f"{what} this run")
        return found

    async def _change(self, found: RunRow, caller: Caller, record_type: str, key: Idempotency | None) -> dict[str, Any]:
        body = {"run": found.id, "campaign": found.campaign, "by": {"sub": caller.sub, "kind": caller.kind}}
        async with self._journal.transaction() as tx:
            status = await tx.fetchval("select status from streams where stream = $1 for update", found.id)
            if status not in _CHANGES[record_type]:
                raise Problem(409, f"run-{status}", f"The run is {status}. Nothing was changed.")
            record = _record(found.id, found.campaign, record_type, body)
            await tx.append(Unit([record], idempotency=standing_for(key, found.id)))
            if record_type == "run.closed":
                await tx.execute("update runs set closed_at = now() where id = $1", found.id)
        return await self.described(found.id, caller)

    async def _check_agent(self, campaign: str, caller: Caller, wanted: RunRequest) -> None:
        if caller.kind != "agent":
            return
        row = await self._pool.fetchrow(
            "select principals from agents where campaign = $1 and name = $2", campaign, caller.sub
        )
        if row is not None and wanted.agent != caller.sub:
            raise await self._campaigns.security.refuse(campaign, caller, "open a run under another agent's name")
        if row is not None and row["principals"] is not None and wanted.principal not in json.loads(row["principals"]):
            raise await self._campaigns.security.refuse(campaign, caller, "open a run for this principal")


def _record(run: str, campaign: str, record_type: str, body: dict[str, Any]) -> NewRecord:
    return NewRecord(
        stream=run, campaign=campaign, id=new_id("rec"), type=record_type, body=json.dumps(body), published=True
    )
