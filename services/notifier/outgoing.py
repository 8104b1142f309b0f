"""Messages to people: written in the transaction of what they follow from, sent by whoever delivers (N3, N4, N7, N9).

A message's id says what happened to whom, so the same is never written twice, whatever is replayed, rebuilt or done by
two notifiers at once. What counts for the record is `accepted`: a message that was due and never accepted told nobody
anything (N4).
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Literal

import asyncpg

from notifier.deliveries import ways
from notifier.feed import Transaction
from notifier.remembering import KEPT
from takeback import json

Kind = Literal[
    "review.ready", "window.reminder", "window.escalation", "window.passed", "role.changed", "calendar.unreadable",
    "approval.requested", "reversal.completed",
]  # fmt: skip
"""What a message is about; its payload is described in `docs/deliveries.md`."""


# A window that is open still asks who was told of it; a delivery that is there may be sent again by hand.
_TRIM_TOLD = """
delete from told where undo_by < now() - $1::interval and not exists (
    select from windows w where w.entry = told.entry and w.undo_by = told.undo_by and w.state = 'open')
"""
_TRIM = """
delete from outgoing where created_at < now() - $1::interval and (accepted_at is null) = (recorded_at is null)
    and not exists (select from told where told.message = outgoing.id)
    and not exists (select from deliveries where deliveries.message = outgoing.id)
"""


class Messages:
    """The messages that were written, for as long as something can follow from them."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def trim(self) -> None:
        """Lets go of those that are long past, and of which windows they told (decision 0022)."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_TRIM_TOLD, KEPT)
            await connection.execute(_TRIM, KEPT)


def message_id(*happened: str) -> str:
    """An id that follows from what happened: the same words, the same id."""
    return "msg_" + hashlib.sha256("\0".join(happened).encode()).hexdigest()[:32]


async def enqueue(
    connection: Transaction, kind: Kind, campaign: str, recipient: str, dedup_id: str, payload: dict[str, Any]
) -> bool:
    """Has *recipient* (a sub) told *payload* once the transaction commits; False when *dedup_id* was written before."""
    new = await connection.fetchval(
        "insert into outgoing (id, campaign, kind, recipient, payload) values ($1, $2, $3, $4, $5) "
        "on conflict do nothing returning true",
        dedup_id, campaign, kind, recipient, json.dumps(payload),
    )  # fmt: skip
    if new:
        await ways.take(connection, kind, campaign, recipient, dedup_id, payload)
    return bool(new)


async def accepted(connection: Transaction, dedup_id: str, at: datetime | None = None) -> None:
    """Somebody's mail server, endpoint or chat has taken the message over, at *at* (default: now, the database's clock).

    To be called by whoever delivers, in the transaction that notes the acceptance. The first acceptance counts: a message
    that goes to a person over three channels has reached them with the first. The journal is told of it after the commit.
    """
    await connection.execute(
        "update outgoing set status = 'accepted', accepted_at = coalesce($2, clock_timestamp()) "
        "where id = $1 and accepted_at is null",
        dedup_id, at,
    )  # fmt: skip
