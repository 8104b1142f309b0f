"""Calls that waited for a person: a retry is the continuation, and its answer is fetched once (S13)."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import asyncpg

from recorder.answers import Answer, answer_of_stored
from recorder.group_reader import GroupReader
from recorder.journal import JournalReader, Vault
from recorder.journal.reading import StoredEntry
from recorder.kept import KeptAnswers
from recorder.resolving import arguments_hash
from recorder.runs import Runs
from takeback.auth import Caller
from takeback.errors import not_found
from takeback.messages.entry import CallRequest

_UNFETCHED: Final = """
select distinct on (q.n) q.n, a.entry
from unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
     as q (n, run, agent, server, operation, arguments_hash)
join runs r on r.id = q.run
join approvals a on a.run = q.run and a.fetched_at is null
join entries e on e.id = a.entry and e.agent = coalesce(q.agent, r.agent) and e.server = q.server
     and e.operation = q.operation and e.arguments_hash = q.arguments_hash
order by q.n, a.id
"""
_LOOK_SECONDS: Final = 0.05


class Continued:
    """Finds the entry that a call goes on with, waits while it is being forwarded, and notes that its answer was fetched."""

    def __init__(
        self,
        *,
        pool: asyncpg.Pool,
        reader: JournalReader,
        vault: Vault,
        kept: KeptAnswers,
        group_reader: GroupReader,
        runs: Runs,
        forward_seconds: float,
    ) -> None:
        self._pool = pool
        self._reader = reader
        self._vault = vault
        self._kept = kept
        self._group_reader = group_reader
        self._runs = runs
        self._forward_seconds = forward_seconds

    async def unfetched(self, run: str, caller: Caller, wanted: CallRequest) -> Answer | None:
        """The answer of the same call (run, caller, agent, operation, arguments) that was asked and not fetched yet."""
        hashed = arguments_hash(wanted.server, wanted.operation, wanted.arguments)
        row = await self._group_reader.one(_UNFETCHED, run, wanted.agent, wanted.server, wanted.operation, hashed)
        if row is None:
            return None
        stored = await self._stored(row["entry"])
        same = stored.body["internal"]["by"]["sub"] == caller.sub
        return await self.answer(run, caller, stored.id) if same else None

    async def answer(self, run: str, caller: Caller, entry: str) -> Answer:
        """What the caller of *entry* is told now. Waiting for a person is not waited for; being forwarded is.

        Raises `Problem` as the call itself would have.
        """
        await self._runs.get(run, caller)
        until = time.monotonic() + self._forward_seconds
        while True:
            stored = await self._stored(entry)
            approval = await self._kept.approval_of(entry)
            if not _under_way(stored, approval) or time.monotonic() > until:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        keys = await self._vault.keys(stored.campaign)
        result = keys.unseal_fields(stored.id, "result", stored.body["entry"]["result"])
        answer = answer_of_stored(stored, result, approval)
        if answer.problem is not None:
            raise answer.problem
        return answer

    async def fetched(self, entry: str) -> None:
        """The answer goes to its caller: from now on the same call is a new one."""
        await self._pool.execute(
            "update approvals set fetched_at = now() where entry = $1 and fetched_at is null", entry
        )

    async def _stored(self, entry: str) -> StoredEntry:
        stored = await self._reader.entry(entry)
        if stored is None:
            raise not_found()
        return stored


def _under_way(stored: StoredEntry, approval: dict[str, Any] | None) -> bool:
    if stored.status == "awaiting_approval":
        return approval is not None and approval["status"] == "approved"
    return stored.status == "pending"
