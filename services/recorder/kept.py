"""Kept answers: what a caller's Idempotency-Key already stands for (contract.md), and the approval that an entry waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from recorder.journal import Idempotency, Refused
from recorder.journal.events_of import public_view
from takeback import json
from takeback.attempt import KEPT, key_conflict
from takeback.errors import Problem

_SOME = 10_000
Answered = dict[str, Any]


class KeptAnswers:
    """Reads and lets go; the commit of what they stand for writes them."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def of(self, claim: Idempotency) -> tuple[str, str] | None:
        """The entry and the body's hash that the caller's key stands for, for the seven days that it is kept."""
        row = await self._pool.fetchrow(
            "select entry, body_hash from idempotency where sub = $1 and path = $2 and key = $3"
            " and created_at > now() - $4::interval",
            claim.sub, claim.path, claim.key, KEPT,
        )  # fmt: skip
        return None if row is None else (row["entry"], row["body_hash"])

    async def once(
        self,
        claim: Idempotency | None,
        act: Callable[[], Awaitable[Answered]],
        again: Callable[[str], Awaitable[Answered]],
    ) -> Answered:
        """What *act* answers, whose commit writes *claim*; where the key stands for something already, that thing now.

        *again* reads it by its id. Raises `Problem` 422 where the key was another request's.
        """
        id_ = await self._standing(claim)
        if id_ is None:
            try:
                return await act()
            except (Refused, Problem):
                id_ = await self._standing(claim)  # the same request may have come through meanwhile
                if id_ is None:
                    raise
        return await again(id_)

    async def _standing(self, claim: Idempotency | None) -> str | None:
        kept = None if claim is None else await self.of(claim)
        if kept is None or claim is None:
            return None
        id_, body_hash = kept
        if body_hash != claim.body_hash:
            raise key_conflict()
        return id_

    async def keep(self, claim: Idempotency | None, id_: str) -> None:
        """Lets *claim* stand for *id_*, where nothing is committed that could carry it."""
        if claim is not None:
            await self._pool.execute(
                "insert into idempotency (sub, path, key, body_hash, entry) values ($1, $2, $3, $4, $5)"
                " on conflict (sub, path, key) do update set body_hash = excluded.body_hash, entry = excluded.entry,"
                " created_at = now() where idempotency.created_at <= now() - $6::interval",
                claim.sub, claim.path, claim.key, claim.body_hash, id_, KEPT,
            )  # fmt: skip

    async def forget(self) -> int:
        """Lets go of the keys whose seven days are over, some at a time so that no call waits for it; how many there were."""
        done = await self._pool.execute(
            "delete from idempotency where ctid = any(array("
            "select ctid from idempotency where created_at <= now() - $2::interval limit $1 for update skip locked))",
            _SOME,
            KEPT,
        )
        return int(done.rpartition(" ")[2])

    async def approval_of(self, entry: str) -> dict[str, Any] | None:
        """The approval that *entry* waits for, or waited for, as its caller may see it."""
        document = await self._pool.fetchval("select document from approvals where entry = $1", entry)
        return None if document is None else for_callers(json.loads(document))


def for_callers(approval: dict[str, Any]) -> dict[str, Any]:
    """*approval* without its reasons: whoever makes a call is not told what would let the next one pass (P10)."""
    return {key: value for key, value in public_view(approval).items() if key != "why"}


def standing_for(claim: Idempotency | None, id_: str) -> Idempotency | None:
    """*claim* as it is written beside what it stands for from now on."""
    return None if claim is None else claim._replace(entry=id_)
