"""The webhooks and chats that a campaign has named, and which event types each of them wants (N6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from notifier.deliveries.ledger import Channel
from notifier.feed import Transaction, subscribing

_TARGET = "select campaign, name, channel, url, types, secret, disabled, created_at from webhooks where campaign = $1"
_SET = """
insert into webhooks (campaign, name, channel, url, types, secret, created_by) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (campaign, name) do update set channel = excluded.channel, types = excluded.types, disabled = null,
    secret = case when webhooks.url = excluded.url then webhooks.secret else excluded.secret end, url = excluded.url
returning *
"""
_LET_GO = """
update deliveries set status = 'dead', error = $3, concluded_at = clock_timestamp()
where channel <> 'email' and campaign = $1 and target = $2 and status = 'waiting'
"""
_SUBSCRIBED = f"select name, channel from webhooks where {subscribing('$2')} order by name"  # noqa: S608  ours


@dataclass(frozen=True, slots=True)
class Target:
    """A webhook or a chat; *secret* signs what goes to a webhook, *disabled* says why nothing is sent any more."""

    campaign: str
    name: str
    channel: Channel
    url: str
    types: list[str]
    secret: bytes
    disabled: str | None
    created_at: datetime

    @classmethod
    def of(cls, row: asyncpg.Record) -> Target:
        """The target in *row*."""
        return cls(
            row["campaign"], row["name"], row["channel"], row["url"], row["types"], row["secret"], row["disabled"],
            row["created_at"],
        )  # fmt: skip


class Targets:
    """Keeps them."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def set(
        self, campaign: str, name: str, channel: Channel, url: str, types: list[str], secret: bytes, by: str
    ) -> Target:
        """Names a target, or changes one and sends to it again. Under the same URL it keeps the secret that it has."""
        row = await self._pool.fetchrow(_SET, campaign, name, channel, url, types, secret, by)
        assert row is not None
        return Target.of(row)

    async def all(self, campaign: str) -> list[Target]:
        """The campaign's targets, by name."""
        return [Target.of(row) for row in await self._pool.fetch(f"{_TARGET} order by name", campaign)]

    async def find(self, campaign: str, name: str) -> Target | None:
        """The one called *name*."""
        row = await self._pool.fetchrow(f"{_TARGET} and name = $2", campaign, name)
        return Target.of(row) if row else None

    async def remove(self, campaign: str, name: str) -> bool:
        """Forgets a target; what waited for it becomes a dead letter. False when there is none."""
        async with self._pool.acquire() as connection, connection.transaction():
            gone = await connection.fetchval(
                "delete from webhooks where campaign = $1 and name = $2 returning true", campaign, name
            )
            if gone:
                await connection.execute(_LET_GO, campaign, name, "the webhook was removed")
        return bool(gone)

    async def disable(self, campaign: str, name: str, reason: str) -> None:
        """Sends nothing there any more, until somebody sets the target again."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                "update webhooks set disabled = $3 where campaign = $1 and name = $2", campaign, name, reason
            )
            await connection.execute(_LET_GO, campaign, name, reason)


async def subscribed(connection: Transaction, campaign: str, type_: str) -> list[tuple[str, Channel]]:
    """Who of the campaign's targets wants *type_*, by name, with the channel."""
    return [(row["name"], row["channel"]) for row in await connection.fetch(_SUBSCRIBED, campaign, type_)]
