"""The feed: what the live streams carry, a table numbered by campaign, so that any replica can resume any client (N6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from takeback import json
from takeback.messages.events import Event
from takeback.subjects import TYPE_PREFIX

ALL = "*"
"""Subscribes to every type."""


def subscribing(type_: str) -> str:
    """The condition that a row of `webhooks` is of campaign $1 and wants the event type that parameter *type_* holds."""
    return f"campaign = $1 and disabled is null and types && array[{type_}, '{ALL}']"


def appending(new: str) -> str:
    """The statement that feeds an event where the statement *new* gives a row, and answers who else wants it.

    No row where it was not fed, else one for each of the campaign's webhooks and chats that wants the event's type, and one
    without a name where none does. $1 to $4 are the campaign, and the event's id, short type and document. The campaign's
    row in `feed_heads` stays locked until the transaction ends, so numbers become visible in order.
    """
    return f"""
with new as ({new}),
known as (select 1 from feed where campaign = $1 and id = $2),
head as (
    insert into feed_heads (campaign, seq) select $1, 1 from new where not exists (select from known)
    on conflict (campaign) do update set seq = feed_heads.seq + 1
    returning seq
),
appended as (insert into feed (campaign, seq, id, type, event) select $1, seq, $2, $3, $4 from head)
select name, channel from new left join webhooks on {subscribing("$3")} order by name
"""  # noqa: S608  statements of ours


_APPEND = appending("select")
_PASS = appending("""
    insert into fed (stream, at, seq) values ($5, $6, $7)
    on conflict (stream) do update set at = excluded.at, seq = excluded.seq
    where (fed.at, fed.seq) < (excluded.at, excluded.seq)
    returning true""")
_READ = "select seq, type, event from feed where campaign = $1 and seq > $2 order by seq limit $3"
PAGE = 200
"""The most events that one `Feed.read` answers."""

Transaction: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
"""A connection inside a transaction; what runs in it commits nothing."""
Wanted: TypeAlias = list[tuple[str, Literal["webhook", "chat"]]]
"""The campaign's webhooks and chats that want an event, by name, with the channel."""


@dataclass(frozen=True, slots=True)
class Fed:
    """One event of the feed: *seq* is its place in the campaign's feed, *event* the CloudEvent's bytes."""

    seq: int
    type: str
    event: bytes


@dataclass(frozen=True, slots=True)
class Cursor:
    """A client's place: the `id:` of the last event that it saw, ``<epoch>-<seq>``."""

    epoch: str
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"

    @classmethod
    def of(cls, text: str) -> Cursor | None:
        """The cursor that *text* says, None when it says none."""
        epoch, _, seq = text.rpartition("-")
        return cls(epoch, int(seq)) if epoch and seq.isascii() and seq.isdigit() and len(seq) < 19 else None


class Feed:
    """Reads and trims; appending is a function of the transaction that it happens in."""

    def __init__(self, pool: asyncpg.Pool, retention_seconds: float) -> None:
        self._pool = pool
        self._retention_seconds = retention_seconds

    async def epoch(self) -> str:
        """What the numbers count from: another one after the feed was made anew, and old cursors mean nothing."""
        epoch: str = await self._pool.fetchval("select epoch from feed_epoch")
        return epoch

    async def head(self, campaign: str) -> int:
        """The number of the newest event, 0 where there is none."""
        seq: int | None = await self._pool.fetchval("select seq from feed_heads where campaign = $1", campaign)
        return seq or 0

    async def read(self, campaign: str, after: int) -> list[Fed]:
        """The next events after number *after*, in order; a page of them."""
        return [Fed(*row) for row in await self._pool.fetch(_READ, campaign, after, PAGE)]

    async def reaches(self, campaign: str, seq: int) -> bool:
        """Whether everything after number *seq* is still there."""
        if seq >= (head := await self.head(campaign)):
            return seq == head
        first: int | None = await self._pool.fetchval("select min(seq) from feed where campaign = $1", campaign)
        return first is not None and first <= seq + 1

    async def trim(self) -> None:
        """Lets go of what is older than the retention."""
        await self._pool.execute(
            "delete from feed where at < now() - make_interval(secs => $1)", self._retention_seconds
        )


async def append(connection: Transaction, campaign: str, event: Event) -> None:
    """Puts *event* at the end of the campaign's feed, unless it is there."""
    await connection.execute(_APPEND, *placed(campaign, event))


async def append_record(connection: Transaction, campaign: str, event: Event) -> Wanted | None:
    """The same for an event of the journal whose record is new to the feed, and who else wants it; None where it is not.

    A replay of the journal is not, a restored journal's record is.
    """
    data = event.data
    rows = await connection.fetch(_PASS, *placed(campaign, event), data["stream"], event.time, data["seq"])
    return wanted_by(rows)


def wanted_by(rows: Sequence[asyncpg.Record]) -> Wanted | None:
    """What a statement of `appending` answered."""
    return [(row["name"], row["channel"]) for row in rows if row["name"] is not None] if rows else None


def placed(campaign: str, event: Event) -> tuple[str, str, str, bytes]:
    """The first parameters of a statement of `appending`."""
    return campaign, event.id, event.type.removeprefix(TYPE_PREFIX), json.dumps(event.wire())
