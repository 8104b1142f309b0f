"""The same POST again, with the same ``Idempotency-Key``, gets the same answer and does nothing anew (contract.md)."""

from __future__ import annotations

import asyncpg

from takeback.attempt import KEPT, Attempt, key_conflict


class Idempotency:
    """Keeps answers for as long as a key stands for them."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def answered(self, attempt: Attempt | None) -> bytes | None:
        """The answer that was given to *attempt* before; raises `Problem` 422 when its key stood for another body."""
        if attempt is None:
            return None
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

    async def keep(self, attempt: Attempt | None, answer: bytes) -> None:
        """Remembers *answer*; of two that answer the same attempt at once the first one counts, and both are alike."""
        if attempt is not None:
            await self._pool.execute(
                "insert into idempotency (sub, path, key, body_hash, answer) values ($1, $2, $3, $4, $5) "
                "on conflict do nothing",
                attempt.sub, attempt.path, attempt.key, attempt.body_hash, answer,
            )  # fmt: skip

    async def trim(self) -> None:
        """Lets go of what is older."""
        await self._pool.execute("delete from idempotency where created_at < now() - $1::interval", KEPT)
