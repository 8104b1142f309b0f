"""Kept answers: what a caller's Idempotency-Key already stands for (contract.md), and the approval that an entry waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asyncpg

from recorder.journal import Idempotency, Refused
from recorder.journal.events_of import public_view
from takeback import json
from takeback.errors import Problem

_SOME = 10_000


class KeptAnswers:
    """Reads and lets go; the intent's own commit writes them."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def of(self, claim: Idempotency) -> tuple[str, str] | None:
        """The entry and the body's hash that the caller's key stands for, for the seven days that it is kept."""
        row = await self._pool.fetchrow(
            "select entry, body_hash from idempotency where sub = $1 and path = $2 and key = $3"
            " and created_at > now() - interval '7 days'",
            claim.sub, claim.path, claim.key,
        )  # fmt: skip
        return None if row is None else (row["entry"], row["body_hash"])

    async def forget(self) -> int:
        """Lets go of the keys whose seven days are over, some at a time so that no call waits for it; how many there were."""
        done = await self._pool.execute(
            "delete from idempotency where ctid = any(array("
            "select ctid from idempotency where created_at <= now() - interval '7 days' limit $1 for update skip locked))",
            _SOME,
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
    return None if claim is None else replace(claim, entry=id_)


def kept_for(refusal: Refused) -> str:
    """What the caller's key stands for already; raises `Problem` 422 where it was another request's, else *refusal*."""
    if refusal.reason == "idempotency-conflict":
        raise key_conflict() from refusal
    if refusal.reason != "idempotency-replay":
        raise refusal
    return refusal.detail


def key_conflict() -> Problem:
    """The caller's key stands for another request."""
    return Problem(
        422,
        "idempotency-conflict",
        "This Idempotency-Key was used with another body. Nothing was forwarded; use a new key for a new request.",
    )
