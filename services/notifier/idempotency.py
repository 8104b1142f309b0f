"""The same POST again, with the same ``Idempotency-Key``, gets the same answer and does nothing anew (contract.md)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import asyncpg

from takeback.auth import Caller
from takeback.errors import Problem, invalid

_KEPT = "7 days"
_MAX_KEY = 255


@dataclass(frozen=True, slots=True)
class Attempt:
    """A POST that carries a key. `seed` is the same for the same POST: ids that are made from it are, too."""

    sub: str
    path: str
    key: str
    body_hash: str

    @property
    def seed(self) -> str:
        """32 hexadecimal digits."""
        parts = "\0".join((self.sub, self.path, self.key, self.body_hash))
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @classmethod
    def of(cls, caller: Caller, path: str, key: str | None, body: bytes) -> Attempt | None:
        """The attempt of a request, None when it carries no key; raises `Problem` 422 for a key that cannot be kept."""
        if key is None:
            return None
        if not 0 < len(key) <= _MAX_KEY or not key.isprintable():
            raise invalid(f"An Idempotency-Key has 1 to {_MAX_KEY} printable characters.")
        return cls(caller.sub, path, key, hashlib.sha256(body).hexdigest())


class Idempotency:
    """Keeps answers for 7 days."""

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
            raise Problem(
                422,
                "idempotency-conflict",
                "This Idempotency-Key was used with another body. Nothing was changed; use a new key.",
            )
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
        """Lets go of what is older than 7 days."""
        await self._pool.execute(f"delete from idempotency where created_at < now() - interval '{_KEPT}'")  # noqa: S608  a constant
