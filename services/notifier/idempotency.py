"""The same POST again, with the same ``Idempotency-Key``, gets the same answer and does nothing anew (contract.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg

from takeback import json
from takeback.attempt import KEPT, Attempt, key_conflict
from takeback.messages.base import Message


class Idempotency:
    """Keeps answers for as long as a key stands for them."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def once(self, attempt: Attempt | None, act: Callable[[], Awaitable[Message]]) -> bytes:
        """What *act* answers, as JSON, or answered to the same *attempt* before; of two at once the first is kept.

        Raises `Problem` 422 when the attempt's key stood for another body.
        """
        kept = None if attempt is None else await self._answered(attempt)
        if kept is not None:
            return kept
        answer = json.dumps((await act()).wire())
        if attempt is not None:
            await self._keep(attempt, answer)
        return answer

    async def _answered(self, attempt: Attempt) -> bytes | None:
        row = await self._pool.fetchrow(
            "select body_hash, answer from idempotency where sub = $1 and path = $2 and key = $3",
            attempt.sub, attempt.path, attempt.key,
        )  # fmt: skip
        if row is None:
            return None
        if row["body_hash"] != attempt.body_hash:
            raise key_conflict()
        answer: bytes = row["answer"]
        return answer

    async def _keep(self, attempt: Attempt, answer: bytes) -> None:
        await self._pool.execute(
            "insert into idempotency (sub, path, key, body_hash, answer) values ($1, $2, $3, $4, $5) "
            "on conflict do nothing",
            attempt.sub, attempt.path, attempt.key, attempt.body_hash, answer,
        )  # fmt: skip

    async def trim(self) -> None:
        """Lets go of what is older."""
        await self._pool.execute("delete from idempotency where created_at < now() - $1::interval", KEPT)
