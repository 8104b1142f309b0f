"""What the notifier tells by itself: a ledger that remembers what was told, so that nothing is told twice (N5).

An announcement is a row, written in the transaction of what it follows from, and fed to the live streams there. One task
publishes what is due and marks it once JetStream has acknowledged; the event's id makes a second publication harmless.
"""

from __future__ import annotations

import asyncio

import asyncpg
import nats.errors
import nats.js.errors
import structlog
from nats.aio.client import Client
from prometheus_client import Gauge

from notifier import feed
from notifier.deliveries import telling
from notifier.remembering import KEPT
from takeback import json
from takeback.errors import words_of
from takeback.messages.events import Event
from takeback.subjects import STREAM, event_subject

log = structlog.get_logger()
DUE = Gauge("takeback_announcements_due", "Announcements that JetStream has not acknowledged yet")
_BATCH = 100
_ACK_SECONDS = 5.0
_ANNOUNCE = feed.appending(
    "insert into announcements (id, campaign, type, event) values ($2, $1, $3, $4) on conflict do nothing returning true"
)
_DUE = """
select id, campaign, type, event from announcements where published_at is null
order by number limit $1 for update skip locked
"""
_LOST = (nats.errors.Error, nats.js.errors.Error, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


async def announce(connection: feed.Transaction, campaign: str, event: Event) -> bool:
    """Tells *event* to everybody in *campaign* once the transaction commits; False when that was done before."""
    wanted = feed.wanted_by(await connection.fetch(_ANNOUNCE, *feed.placed(campaign, event)))
    if wanted is not None:
        await telling.tell(connection, campaign, event, wanted)
    return wanted is not None


class Announcer:
    """Publishes what is due, whichever replica announced it; several may run (SKIP LOCKED)."""

    def __init__(self, pool: asyncpg.Pool, client: Client, sweep_seconds: float) -> None:
        self._pool = pool
        self._client = client
        self._sweep_seconds = sweep_seconds
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something may be due."""
        self._woken.set()

    async def run(self) -> None:
        """Publishes for ever: when woken, and on each sweep what a crash or a lost bus left behind."""
        while True:
            try:
                async with asyncio.timeout(self._sweep_seconds):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                while await self._publish_batch() == _BATCH:
                    pass
                DUE.set(await self.due())
            except _LOST as error:
                log.warning("announcements wait for the bus", error=words_of(error))

    async def trim(self) -> None:
        """Lets go of what JetStream has had for so long that nothing can ask for it any more (decision 0022)."""
        await self._pool.execute("delete from announcements where published_at < now() - $1::interval", KEPT)

    async def due(self) -> int:
        """How many wait for JetStream."""
        count: int = await self._pool.fetchval("select count(*) from announcements where published_at is null")
        return count

    async def _publish_batch(self) -> int:
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(_DUE, _BATCH)
            answers = await asyncio.gather(*(self._publish(row) for row in rows), return_exceptions=True)
            done = [row["id"] for row, answer in zip(rows, answers, strict=True) if answer is None]
            if done:
                await connection.execute("update announcements set published_at = now() where id = any($1)", done)
        for answer in answers:
            if answer is not None:
                raise answer
        return len(rows)

    async def _publish(self, row: asyncpg.Record) -> None:
        await self._client.jetstream().publish(
            event_subject(row["campaign"], row["type"]),
            row["event"],
            timeout=_ACK_SECONDS,
            stream=STREAM,
            headers={"Nats-Msg-Id": row["id"]},
        )
        event = json.loads(row["event"])
        entry = event["data"].get("invocationId") or event["data"].get("entry")
        log.info("announced", type=row["type"], campaign=row["campaign"], run=event["subject"], entry=entry)
