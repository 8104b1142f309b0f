"""The queue of reversals: a row for each decided plan, taken by one recorder at a time under a lease (design.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import asyncpg

from recorder.journal import JournalReader, Transaction
from recorder.reversing.receipts import step_id
from recorder.reversing.reversal import Reversal, decided_of
from recorder.reversing.work import Decided
from takeback import json
from takeback.messages.plan import Receipt

# A reversal whose records another one holds waits: it would only hear `already_reverted` in the middle of the other's work.
_DUE: Final = """
select id, campaign, decision, status = 'running' as resumed from reversals r
where status in ('queued', 'running') and (claimed_until is null or claimed_until <= now())
  and not exists (select from holds h where h.campaign = r.campaign and h.reversal <> r.id
                  and h.resource in (select jsonb_array_elements_text(r.decision -> 'resources')))
order by created_at limit 1 for update skip locked
"""
_TAKE: Final = """
with held as (
    insert into holds (campaign, resource, reversal) select $2, name, $1 from unnest($3::text[]) as name order by name
    on conflict do nothing returning resource)
update reversals set status = 'running', claimed_by = $4, claimed_until = clock_timestamp() + make_interval(secs => $5)
where id = $1 and cardinality($3::text[]) = (select count(*) from held)
    + (select count(*) from holds where campaign = $2 and reversal = $1 and resource = any($3::text[]))
returning clock_timestamp() as now, (select serialize from campaigns where campaigns.id = $2) as serialize
"""
_PUT: Final = """
insert into reversals (id, campaign, status, decision) values ($1, $2, $3, $4) on conflict (id) do nothing
"""
_LET_GO: Final = "delete from holds where campaign = $1 and reversal = $2"
_RENEW: Final = """
update reversals set claimed_until = now() + make_interval(secs => $3)
where id = $1 and claimed_by = $2 and status = 'running' returning id
"""
_GIVE_BACK: Final = """
update reversals set claimed_until = now() where id = $1 and claimed_by = $2 and status = 'running'
"""
_FINISH: Final = """
update reversals set status = 'completed', finished_at = now(), claimed_by = null, claimed_until = null, result = $2
where id = $1
"""


class HoldTaken(Exception):
    """Another reversal took a record in the same moment; this one waits."""


class ReversalQueue:
    """Takes and finishes rows; *holder* names this process."""

    def __init__(self, pool: asyncpg.Pool, reader: JournalReader, holder: str, lease_seconds: float) -> None:
        self._pool = pool
        self._reader = reader
        self._holder = holder
        self.lease_seconds = lease_seconds

    async def take(self) -> Reversal | None:
        """The next reversal that is due, its records held still from now on; None when there is none."""
        while True:
            try:
                async with self._pool.acquire() as connection, connection.transaction():
                    row = await connection.fetchrow(_DUE)
                    if row is None:
                        return None
                    decision = json.loads(row["decision"])
                    taken = await connection.fetchrow(
                        _TAKE, row["id"], row["campaign"], decision["resources"], self._holder, self.lease_seconds
                    )
                    if taken is None:
                        raise HoldTaken(row["id"])
                break
            except (HoldTaken, asyncpg.DeadlockDetectedError):
                continue
        proposed = await self._reader.record(row["id"])
        assert proposed is not None
        decided = decided_of(json.loads(proposed.body), decision["body"], decision["by"]["sub"])
        reversal = _taken(row["id"], row["campaign"], decided, decision, taken)
        if row["resumed"]:
            await self._read_receipts(reversal)
        return reversal

    async def put(self, tx: Transaction, plan: str, campaign: str, status: str, decision: Mapping[str, Any]) -> bool:
        """Queue the reversal of a plan in the transaction of its decision; false where the plan is decided already."""
        return await tx.execute(_PUT, plan, campaign, status, json.dumps(decision).decode()) == "INSERT 0 1"

    async def take_at_once(
        self, tx: Transaction, campaign: str, decided: Decided, decision: Mapping[str, Any]
    ) -> Reversal | None:
        """Take what *tx* has put into the queue; None, and it stays queued, where another reversal holds a record of it."""
        plan = decided.plan.id
        taken = await tx.fetchrow(_TAKE, plan, campaign, decision["resources"], self._holder, self.lease_seconds)
        if taken is None:
            await tx.execute(_LET_GO, campaign, plan)  # all of them or none
            return None
        return _taken(plan, campaign, decided, decision, taken)

    async def renew(self, reversal: str) -> bool:
        """Keep the lease for another while; false when somebody else has the reversal now."""
        return await self._pool.fetchval(_RENEW, reversal, self._holder, self.lease_seconds) is not None

    async def give_back(self, reversal: str) -> None:
        """Let another recorder have the reversal at once."""
        await self._pool.execute(_GIVE_BACK, reversal, self._holder)

    async def finish(self, tx: Transaction, reversal: str, result: dict[str, Any]) -> None:
        """Close the row in the transaction of the Reversal Record."""
        await tx.execute(_FINISH, reversal, json.dumps(result).decode())

    async def _read_receipts(self, reversal: Reversal) -> None:
        """What whoever had the reversal before has done of it."""
        ids = [step_id(reversal.id, step.entry) for step in reversal.decided.plan.steps]
        rows = await self._pool.fetch(
            "select body from records where id = any($1) and stream = $2", ids, reversal.campaign
        )
        for row in rows:
            receipt = Receipt.model_validate(json.loads(row["body"])["receipt"])
            reversal.done[receipt.entry] = receipt


def _taken(id_: str, campaign: str, decided: Decided, decision: Mapping[str, Any], taken: Any) -> Reversal:
    return Reversal(
        id=id_,
        campaign=campaign,
        decided=decided,
        kind=decision["by"]["kind"],
        authorities=decision["authorities"],
        resources=decision["resources"],
        taken_at=taken["now"],
        serialize=taken["serialize"],
    )
