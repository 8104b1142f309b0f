"""What a tool server keeps in the application's own database: answers, fences and compensation tokens."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

import asyncpg

from takeback import json
from takeback.toolserver.record import Tx

_T = TypeVar("_T")
_ATTEMPTS = 8
AnswerState = Literal["claimed", "committed", "failed", "never"]

_TABLES = """
create table if not exists takeback_answers (
    key text primary key,
    operation text,
    state text not null check (state in ('claimed', 'committed', 'failed', 'never')),
    answer text,
    at timestamptz not null default now()
);
create table if not exists takeback_fences (serial_key text primary key, fence bigint not null);
create table if not exists takeback_tokens (
    token text primary key,
    operation text not null,
    body text not null,
    undo_by timestamptz,
    reverses text references takeback_tokens,
    reverted_by text,
    at timestamptz not null default now()
);
"""


@dataclass(frozen=True, slots=True)
class Answered:
    """What is known of an idempotency key. *answer* is the JSON that the first call was given."""

    state: AnswerState
    operation: str | None
    answer: Any


@dataclass(frozen=True, slots=True)
class Token:
    """A compensation token: what to put back, of which operation, until when, and whether that was done (by whom)."""

    token: str
    operation: str
    body: dict[str, Any]
    closed: bool
    reverses: str | None
    reverted_by: str | None


class PostgresStore:
    """The tables of the SDK in the application's database, reached through the application's own asyncpg *pool*.

    They stand beside the application's tables, so that an effect, its token and its answer commit together. The pool's
    connections must be reset when they are released, as asyncpg does by itself: that gives up the locks.
    """

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool

    async def prepare(self) -> None:
        """Make the tables where they do not exist yet. Safe to run at every start, by several processes at once."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("select pg_advisory_xact_lock(hashtextextended('takeback.toolserver', 0))")
            await connection.execute(_TABLES)

    async def transact(
        self, work: Callable[[Tx], Awaitable[_T]], *, locks: Sequence[str] = (), once: bool = False
    ) -> _T:
        """Do *work* in one transaction while holding the locks of the resources in *locks*.

        A concurrent write by anybody else (a person in the application itself) makes it start over, so *work* must
        have no effect beside the database; with *once* it raises `asyncpg.SerializationError` instead.
        """
        async with self._pool.acquire() as connection:
            if locks:
                # Before the transaction begins, so that its snapshot shows what the last holder did; the pool's
                # reset gives them up.
                await connection.execute(
                    "select pg_advisory_lock(hashtextextended(r, 0)) from (select unnest($1::text[]) r order by 1) s",
                    list(locks),
                )
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    async with connection.transaction(isolation="repeatable_read"):
                        return await work(connection)
                except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                    if once or attempt == _ATTEMPTS:
                        raise
        raise AssertionError("unreachable")

    async def read(self, look: Callable[[Tx], Awaitable[_T]]) -> _T:
        """What *look* reads, without a transaction: one statement, which locks nothing."""
        async with self._pool.acquire() as connection:
            return await look(connection)

    # --- answers ---

    async def claim(self, tx: Tx, key: str, operation: str, state: AnswerState = "claimed") -> Answered | None:
        """Take *key* for this transaction; None when it was free, else what is known of it.

        Waits for a transaction that holds the key.
        """
        taken = await tx.fetchval(
            "insert into takeback_answers (key, operation, state) values ($1, $2, $3)"
            " on conflict (key) do nothing returning key",
            key,
            operation,
            state,
        )
        return None if taken is not None else await self.answer(tx, key)

    async def answer(self, tx: Tx, key: str) -> Answered | None:
        """What is known of *key*."""
        row = await tx.fetchrow("select state, operation, answer from takeback_answers where key = $1", key)
        if row is None:
            return None
        return Answered(row["state"], row["operation"], None if row["answer"] is None else json.loads(row["answer"]))

    async def conclude(self, tx: Tx, key: str, state: AnswerState, answer: Any) -> None:
        """Keep the answer for *key*, to be given again to whoever comes with the same key."""
        await tx.execute(
            "update takeback_answers set state = $2, answer = $3 where key = $1",
            key,
            state,
            json.dumps(answer).decode(),
        )

    # --- fences ---

    async def raise_fence(self, tx: Tx, serial_key: str, fence: int) -> bool:
        """Note *fence* under its counter; false when a higher one was seen before."""
        seen = await tx.fetchval(
            "insert into takeback_fences as f values ($1, $2) on conflict (serial_key) do update"
            " set fence = excluded.fence where f.fence <= excluded.fence returning fence",
            serial_key,
            fence,
        )
        return seen is not None

    # --- tokens ---

    async def issue(
        self, tx: Tx, operation: str, body: dict[str, Any], window: timedelta | None, reverses: str | None = None
    ) -> tuple[str, datetime | None]:
        """A new compensation token and the instant until which it can be used (None: for ever)."""
        token = secrets.token_urlsafe(24)
        undo_by = await tx.fetchval(
            "insert into takeback_tokens (token, operation, body, undo_by, reverses)"
            " values ($1, $2, $3, now() + $4::interval, $5) returning undo_by",
            token,
            operation,
            json.dumps(body).decode(),
            window,
            reverses,
        )
        return token, undo_by

    async def token(self, tx: Tx, token: str, *, lock: bool = True) -> Token | None:
        """The token; with *lock* nobody changes it before the transaction ends."""
        found = "select *, undo_by <= clock_timestamp() as closed from takeback_tokens where token = $1"
        row = await tx.fetchrow(f"{found} for update" if lock else found, token)
        if row is None:
            return None
        body = json.loads(row["body"])
        return Token(token, row["operation"], body, bool(row["closed"]), row["reverses"], row["reverted_by"])

    async def use(self, tx: Tx, token: Token, key: str) -> None:
        """Mark *token* as used by *key*. What it had reversed may be taken back again, and so on up the line."""
        used = True
        name: str | None = token.token
        while name is not None:
            name = await tx.fetchval(
                "update takeback_tokens set reverted_by = $2 where token = $1 returning reverses",
                name,
                key if used else None,
            )
            used = not used
