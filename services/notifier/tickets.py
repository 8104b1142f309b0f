"""Tickets: what opens a live stream from a browser, which cannot send a header. Short-lived, used once, by any replica."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime

import asyncpg

from takeback.auth import Caller
from takeback.messages.review import Ticket


class Tickets:
    """Only the hash of a ticket is kept; beside it, for a request with an Idempotency-Key, the answer that it got."""

    def __init__(self, pool: asyncpg.Pool, lifetime_seconds: float) -> None:
        self._pool = pool
        self._lifetime_seconds = lifetime_seconds

    async def issue(self, caller: Caller) -> Ticket:
        """A ticket that stands for *caller* once."""
        ticket = secrets.token_urlsafe(32)
        expires_at: datetime = await self._pool.fetchval(
            "insert into tickets (ticket_hash, sub, kind, expires_at) "
            "values ($1, $2, $3, now() + make_interval(secs => $4)) returning expires_at",
            _hash(ticket),
            caller.sub,
            caller.kind,
            self._lifetime_seconds,
        )
        return Ticket(ticket=ticket, expires_at=expires_at)

    async def take(self, ticket: str) -> Caller | None:
        """Whom *ticket* stands for; it is used up by that. None when it is unknown, used or expired."""
        row = await self._pool.fetchrow(
            "delete from tickets where ticket_hash = $1 returning sub, kind, expires_at > now() as valid", _hash(ticket)
        )
        return Caller(row["sub"], row["kind"]) if row is not None and row["valid"] else None

    async def trim(self) -> None:
        """Lets go of what nobody used in time."""
        await self._pool.execute("delete from tickets where expires_at < now()")


def _hash(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).digest()
