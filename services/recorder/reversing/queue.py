"""The queue of reversals: a row for each decided plan, taken by one recorder at a time under a lease (design.md)."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from recorder.journal import JournalReader, Transaction
from recorder.reversing.receipts import step_id
from recorder.reversing.reversal import Reversal, decided_of
from takeback import json
from takeback.messages.plan import Receipt

# A reversal whose records another one holds waits: it would only hear `already_reverted` in the middle of the other's work.
_DUE: Final = """
select id, campaign, decision from reversals r
where status in ('queued', 'running') and (claimed_until is null or claimed_until <= now())
  and not exists (select from holds h where h.campaign = r.campaign and h.reversal <> r.id
                  and h.resource in (select jsonb_array_elements_text(r.decision -> 'resources')))
order by created_at limit 1 for update skip locked
"""
_TAKE: Final = """
update reversals set status = 'running', claimed_by = $2, claimed_until = now() + make_interval(secs => $3) where id = $1
"""
_HOLD: Final = """
insert into holds (campaign, resource, reversal) select $1, name, $2 from unnest($3::text[]) as name on conflict do nothing
"""
_HELD: Final = "select count(*) from holds where campaign = $1 and reversal = $2 and resource = any($3)"
_RENEW: Final = """
update reversals set claimed_until = now() + make_interval(secs => $3)
where id = $1 and claimed_by = $2 and status = 'running' returning id
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
                    wanted = decision["resources"]
                    await connection.execute(_HOLD, row["campaign"], row["id"], wanted)
                    if await connection.fetchval(_HELD, row["campaign"], row["id"], wanted) != len(wanted):
                        raise HoldTaken(row["id"])
                    await connection.execute(_TAKE, row["id"], self._holder, self.lease_seconds)
                return await self._read(row["id"], row["campaign"], decision)
            except (HoldTaken, asyncpg.DeadlockDetectedError):
                continue

    async def renew(self, reversal: str) -> bool:
        """Keep the lease for another while; false when somebody else has the reversal now."""
        return await self._pool.fetchval(_RENEW, reversal, self._holder, self.lease_seconds) is not None

    async def finish(self, tx: Transaction, reversal: str, result: dict[str, Any]) -> None:
        """Close the row in the transaction of the Reversal Record."""
        await tx.execute(_FINISH, reversal, json.dumps(result).decode())

    async def _read(self, id_: str, campaign: str, decision: dict[str, Any]) -> Reversal:
        proposed = await self._reader.record(id_)
        assert proposed is not None
        serialize = await self._pool.fetchval("select serialize from campaigns where id = $1", campaign)
        decided = decided_of(json.loads(proposed.body), decision["body"], decision["by"]["sub"])
        reversal = Reversal(
            id=id_,
            campaign=campaign,
            decided=decided,
            kind=decision["by"]["kind"],
            authorities=decision["authorities"],
            resources=decision["resources"],
            serialize=serialize or "campaign",
        )
        ids = [step_id(id_, step.entry) for step in decided.plan.steps]
        rows = await self._pool.fetch("select body from records where id = any($1) and stream = $2", ids, campaign)
        for row in rows:
            receipt = Receipt.model_validate(json.loads(row["body"])["receipt"])
            reversal.done[receipt.entry] = receipt
        return reversal
