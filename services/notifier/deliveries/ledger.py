"""The delivery ledger: a row for each target, written in the transaction of what it tells, taken by one worker at a time (N7).

A row is taken by moving `due_at` past the deadline of the attempt: a worker that dies leaves it due again. So a delivery
is made twice only where a worker ended between the receiver's acceptance and the mark, and then under the same id.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import asyncpg

from notifier.feed import Transaction
from takeback import json
from takeback.ids import new_id

Channel = Literal["email", "webhook", "chat"]
Lane = tuple[str, str, str]
"""Channel, campaign and target: one receiver. What one does delays no other."""

_PUT = """
insert into deliveries (id, campaign, channel, target, type, about, message, payload, due_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp() + make_interval(secs => $9))
on conflict do nothing
"""
# What waits for a person already takes what comes after it along; a person who has just got one gets the next a while later.
_MAIL_WAITS = """
select case when $5::timestamptz < clock_timestamp() + interval '10 minutes' then $4::float8 else
least($3::float8, greatest($4::float8, (coalesce(
    (select extract(epoch from min(due_at) - clock_timestamp()) from deliveries
     where channel = 'email' and campaign = $1 and target = $2 and status = 'waiting' and batch is null),
    (select extract(epoch from max(concluded_at) - clock_timestamp()) from deliveries
     where channel = 'email' and campaign = $1 and target = $2 and status = 'accepted') + $3::float8, 0))::float8)) end
"""
_TAKE_SINGLES = """
with lanes as (
    select distinct channel, campaign, target from deliveries
    where status = 'waiting' and channel <> 'email' and due_at <= clock_timestamp()
), taken as (
    select picked.id from lanes cross join lateral (
        select id from deliveries as due
        where due.status = 'waiting' and due.due_at <= clock_timestamp()
          and (due.channel, due.campaign, due.target) = (lanes.channel, lanes.campaign, lanes.target)
        order by due.due_at limit $3 for update skip locked
    ) as picked
    where not (lanes.channel || ' ' || lanes.campaign || ' ' || lanes.target) = any($1)
)
update deliveries set attempts = attempts + 1, due_at = $4::timestamptz + make_interval(secs => $2)
from taken where deliveries.id = taken.id
returning deliveries.*
"""
_DUE_MAIL = """
with lanes as (
    select distinct campaign, target from deliveries
    where status = 'waiting' and channel = 'email' and due_at <= clock_timestamp()
)
select picked.* from lanes cross join lateral (
    select id, campaign, target, batch from deliveries as due
    where due.status = 'waiting' and due.channel = 'email' and due.due_at <= clock_timestamp()
      and (due.campaign, due.target) = (lanes.campaign, lanes.target)
    order by due.due_at limit 1 for update skip locked
) as picked
where not ('email ' || lanes.campaign || ' ' || lanes.target) = any($1)
limit $2
"""
_TAKE_BATCH = """
with taken as (
    select id from deliveries
    where status = 'waiting' and channel = 'email' and campaign = $1 and target = $2
      and case when $3::text is null then batch is null else batch = $3 end
    order by (id = $4) desc, id limit $5 for update skip locked
)
update deliveries set attempts = attempts + 1, batch = $4, due_at = $7::timestamptz + make_interval(secs => $6)
from taken where deliveries.id = taken.id
returning deliveries.*
"""
_NEXT = """
select greatest(0, extract(epoch from due_at - clock_timestamp()))::float8 from deliveries
where status = 'waiting' and not (channel || ' ' || campaign || ' ' || target) = any($1) order by due_at limit 1
"""
_SIDE_BY_SIDE = 8
"""How many deliveries one receiver gets at the same time."""
_MAX_DIGEST = 200
_GATHER_SECONDS = 0.5
_INTERVAL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One row as a sender needs it; *attempts* counts this attempt too."""

    id: str
    campaign: str
    channel: Channel
    target: str
    type: str
    message: str | None
    payload: bytes
    attempts: int
    batch: str | None
    created_at: datetime
    taken_until: datetime

    @classmethod
    def of(cls, row: asyncpg.Record) -> Delivery:
        """The delivery in *row*."""
        return cls(
            row["id"], row["campaign"], row["channel"], row["target"], row["type"], row["message"], row["payload"],
            row["attempts"], row["batch"], row["created_at"], row["due_at"],
        )  # fmt: skip


class LeaseLapsed(Exception):
    """It took so long to get ready that somebody else may take the delivery before an attempt could end. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What one attempt sends: one delivery, or the several of a digest, under the id of the first.

    *start_by*, on the monotonic clock, is until when an attempt may begin and end within the lease.
    """

    lane: Lane
    deliveries: list[Delivery]
    start_by: float = float("inf")

    @property
    def id(self) -> str:
        """What the receiver drops a repeat by."""
        first = self.deliveries[0]
        return first.batch or first.id

    @property
    def attempts(self) -> int:
        """How often it was tried, this time included."""
        return max(delivery.attempts for delivery in self.deliveries)

    def still_mine(self) -> None:
        """Raises `LeaseLapsed` when it is too late to begin."""
        if time.monotonic() > self.start_by:
            raise LeaseLapsed(f"{self.id} was not ready in time")


async def put(
    connection: Transaction,
    channel: Channel,
    campaign: str,
    target: str,
    type_: str,
    about: str,
    payload: Any,
    *,
    message: str | None = None,
    wait_seconds: float = 0.0,
) -> None:
    """Has *target* told once the transaction commits; of what it was told *about* before nothing is written again."""
    await connection.execute(
        _PUT, new_id("dlv"), campaign, channel, target, type_, about, message, json.dumps(payload), wait_seconds
    )


async def put_mail(
    connection: Transaction,
    campaign: str,
    sub: str,
    type_: str,
    about: str,
    payload: Any,
    *,
    message: str | None = None,
    deadline: datetime | None = None,
) -> None:
    """The same by e-mail to *sub*: what comes together goes in one digest, and the next one a while later.

    With a *deadline* that is near it goes at once, and takes along what waits.
    """
    wait = await connection.fetchval(_MAIL_WAITS, campaign, sub, _INTERVAL_SECONDS, _GATHER_SECONDS, deadline)
    await put(connection, "email", campaign, sub, type_, about, payload, message=message, wait_seconds=wait)


class Ledger:
    """Takes what is due and keeps what became of it; several processes may, side by side.

    A lease is twice as long as an attempt may take. *accepted* is told of each message to a person that was taken over, in
    the transaction that marks it.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        accepted: Callable[[Transaction, str], Awaitable[None]],
        lease_seconds: float,
        retention_seconds: float,
    ) -> None:
        self._pool = pool
        self._accepted = accepted
        self._lease_seconds = lease_seconds
        self._retention_seconds = retention_seconds

    async def take(self, busy: Sequence[Lane], mails: int) -> list[Parcel]:
        """What is due, for no lane in *busy*, at most *mails* e-mails; the lease begins."""
        names = [" ".join(lane) for lane in busy]
        start_by = time.monotonic() + self._lease_seconds / 2
        async with self._pool.acquire() as connection, connection.transaction():
            now = await connection.fetchval("select clock_timestamp()")
            rows = await connection.fetch(_TAKE_SINGLES, names, self._lease_seconds, _SIDE_BY_SIDE, now)
            parcels = [Parcel(_lane(row), [Delivery.of(row)], start_by) for row in rows]
            for due in await connection.fetch(_DUE_MAIL, names, mails):
                batch = await connection.fetch(
                    _TAKE_BATCH,
                    due["campaign"], due["target"], due["batch"], due["batch"] or due["id"], _MAX_DIGEST,
                    self._lease_seconds, now,
                )  # fmt: skip
                whole = sorted(map(Delivery.of, batch), key=lambda one: one.id)
                parcels.append(Parcel(_lane(batch[0]), whole, start_by))
        return parcels

    async def next_due_seconds(self, busy: Sequence[Lane]) -> float | None:
        """Seconds until something is due for a lane that is not in *busy*; None when nothing waits."""
        seconds: float | None = await self._pool.fetchval(_NEXT, [" ".join(lane) for lane in busy])
        return seconds

    async def accepted(self, parcel: Parcel) -> int:
        """Marks what a receiver took over, whoever holds the lease by now; answers how many that is news for."""
        async with self._pool.acquire() as connection, connection.transaction():
            new = await connection.fetch(
                "update deliveries set status = 'accepted', error = null, concluded_at = clock_timestamp() "
                "where id = any($1) and status <> 'accepted' returning message",
                [delivery.id for delivery in parcel.deliveries],
            )
            for message in {row["message"] for row in new} - {None}:
                await self._accepted(connection, message)
        return len(new)

    async def retry(self, parcel: Parcel, reason: str, after_seconds: float) -> None:
        """Leaves it for later, unless somebody else has taken it meanwhile."""
        await self._pool.execute(
            "update deliveries set due_at = clock_timestamp() + make_interval(secs => $3), error = $4 "
            "where id = any($1) and status = 'waiting' and due_at = $2",
            [delivery.id for delivery in parcel.deliveries], parcel.deliveries[0].taken_until, after_seconds, reason,
        )  # fmt: skip

    async def give_up(self, parcel: Parcel, status: Literal["dead", "not_configured"], reason: str) -> None:
        """A dead letter: seen in the list, sent again when a person says so."""
        await self._pool.execute(
            "update deliveries set status = $3, error = $4, concluded_at = clock_timestamp() "
            "where id = any($1) and status = 'waiting' and due_at = $2",
            [delivery.id for delivery in parcel.deliveries], parcel.deliveries[0].taken_until, status, reason,
        )  # fmt: skip

    async def waiting(self) -> dict[str, tuple[int, float]]:
        """How many wait on each channel, and for how many seconds the oldest has."""
        rows = await self._pool.fetch(
            "select channel, count(*) as count, extract(epoch from clock_timestamp() - min(created_at))::float8 as age "
            "from deliveries where status = 'waiting' group by channel"
        )
        return {row["channel"]: (row["count"], row["age"]) for row in rows}

    async def trim(self) -> None:
        """Lets go of what was concluded longer ago than the retention; the journal tells it to nobody again."""
        await self._pool.execute(
            "delete from deliveries where concluded_at < now() - make_interval(secs => $1)", self._retention_seconds
        )


def _lane(row: asyncpg.Record) -> Lane:
    return row["channel"], row["campaign"], row["target"]
