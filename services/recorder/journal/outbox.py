"""From the journal to JetStream: published at once by one task, and by a sweeper whatever a crash or an outage left behind.

The outbox holds references in the commit of their records. A row goes when JetStream has acknowledged. Rows are drained with
SKIP LOCKED, never by "above the last": the order of numbers is not the order of commits. What goes out twice carries the same
``Nats-Msg-Id``, and consumers know a record by its place in the stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import asyncpg
import structlog
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import PubAck

from recorder import failpoints
from recorder.journal.chain import Record
from recorder.journal.events_of import document_of
from recorder.journal.unit import Appended, Unit
from takeback import json
from takeback.errors import words_of
from takeback.metrics import OUTBOX_AGE, OUTBOX_DEPTH
from takeback.subjects import event_subject
from takeback.tasks import end

BATCH = 256
ANSWERS_FIRST = 4
"""Turns of the event loop that a record lets go by: an answer to its caller, who waits, goes before its event."""
FORGET_SECONDS = 0.05
"""How long rows of what was published may wait to be deleted together."""
_FORGET = """
with relaxed as (select set_config('synchronous_commit', 'off', true))
delete from outbox using relaxed where id = any($1)
"""
"""Lost at worst in a crash: then the sweeper publishes it again under the same id."""
MAX_WAITING = 20_000
"""Beyond this many records in memory the rest is left to the sweeper."""

_log = structlog.get_logger(__name__)

Said = Mapping[str, Any] | None
Publish = Callable[[Sequence[tuple[Record, Said]]], Awaitable[list[Exception | None]]]
"""Publishes records, each with what its body says where that is known; answers what became of each, None for stored."""


def jetstream_publish(js: JetStreamContext, deadline: float = 5.0) -> Publish:
    """Publish the events of records and wait, *deadline* seconds at most, until JetStream has stored them."""

    async def begin(record: Record, said: Said) -> asyncio.Future[PubAck]:
        subject = event_subject(record.campaign, record.type)
        return await js.publish_async(
            subject, json.compact(document_of(record, said)), headers={"Nats-Msg-Id": record.id}
        )

    async def publish(records: Sequence[tuple[Record, Said]]) -> list[Exception | None]:
        begun: list[asyncio.Future[PubAck] | Exception] = []
        try:
            for record, said in records:
                try:
                    begun.append(await begin(record, said))
                except Exception as error:  # one that can never go out holds up no other
                    begun.append(error)
            if acknowledged := [one for one in begun if isinstance(one, asyncio.Future)]:
                await asyncio.wait(acknowledged, timeout=deadline)
            return [one if isinstance(one, Exception) else _outcome(one) for one in begun]
        finally:
            for one in begun:
                if isinstance(one, asyncio.Future):
                    one.cancel()  # too late for whoever waited

    return publish


def _outcome(acknowledged: asyncio.Future[PubAck]) -> Exception | None:
    if not acknowledged.done():
        return TimeoutError("JetStream did not answer in time")
    error = acknowledged.exception()
    return error if error is None or isinstance(error, Exception) else RuntimeError(repr(error))


class Publisher:
    """One recorder's publisher. Hand `committed` to the `Journal`; *sweep_seconds* is how often leftovers are looked for."""

    def __init__(self, pool: asyncpg.Pool, publish: Publish, sweep_seconds: float = 5.0) -> None:
        self._pool = pool
        self._publish = publish
        self._sweep_seconds = sweep_seconds
        self._waiting: deque[tuple[Record, Said]] = deque()
        self._sent: list[str] = []
        self._out = asyncio.Event()
        self._wake = asyncio.Event()
        self.background: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to publish and to sweep."""
        self.background = [
            asyncio.create_task(self._run(), name="journal publisher"),
            asyncio.create_task(self._forget_for_ever(), name="outbox clearing"),
            asyncio.create_task(self._sweep_for_ever(), name="outbox sweeper"),
        ]

    async def stop(self) -> None:
        """Stop at once: what is not out yet stays in the outbox for any recorder's sweeper."""
        await end(*self.background)
        if self._sent:
            await self._forget()

    def committed(self, units: Sequence[tuple[Unit, Appended]]) -> None:
        """Take the published records of *units*, just committed, and publish them soon. Never blocks, never raises."""
        for unit, appended in units:
            for new, placed in zip(unit.records, appended.records, strict=True):
                if not new.published or len(self._waiting) >= MAX_WAITING:
                    continue
                record = Record(
                    placed.stream,
                    placed.seq,
                    new.id,
                    new.campaign,
                    new.type,
                    placed.at,
                    placed.previous_hash,
                    placed.hash,
                    new.body,
                    new.entry,
                    placed.label,
                    placed.after,
                    True,
                )
                self._waiting.append((record, new.said))
        if self._waiting:
            failpoints.reach("before-publish")
            self._wake.set()

    async def sweep(self, older_than: float = 0.0) -> int:
        """Publish what has been in the outbox for *older_than* seconds; answers how many went out.

        Raises what JetStream said when it takes none of a batch; one that it never takes does not hold up the others.
        """
        total = 0
        while True:
            async with self._pool.acquire() as connection, connection.transaction():
                rows = await connection.fetch(
                    "select id, stream, seq, at from outbox where at <= clock_timestamp() - make_interval(secs => $1) "
                    "order by at, stream, seq limit $2 for update skip locked",
                    older_than,
                    BATCH,
                )
                if not rows:
                    return total
                records = await _records(connection, rows)
                sent, error = await self._send([(record, None) for record in records])
                await connection.execute("delete from outbox where id = any($1)", sent)
            total += len(sent)
            if error is not None and not sent:
                raise error

    async def depth(self) -> tuple[int, float]:
        """How many records await publication, and the age of the oldest in seconds."""
        row = await self._pool.fetchrow(
            "select count(*), coalesce(extract(epoch from clock_timestamp() - min(at)), 0)::float8 from outbox"
        )
        assert row is not None  # an aggregate answers one row
        return row[0], max(row[1], 0.0)

    async def _run(self) -> None:
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                for _ in range(ANSWERS_FIRST):
                    await asyncio.sleep(0)
            records = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            sent, error = await self._send(records)
            if error is not None:
                _log.warning(
                    "published later: JetStream did not take it", records=len(records) - len(sent), error=str(error)
                )
            self._sent += sent
            self._out.set()

    async def _forget_for_ever(self) -> None:
        while True:
            await self._out.wait()
            await asyncio.sleep(FORGET_SECONDS)
            self._out.clear()
            await self._forget()

    async def _forget(self) -> None:
        sent, self._sent = self._sent, []
        try:
            await self._pool.execute(_FORGET, sent)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            _log.warning(
                "published, and still in the outbox: it will go out again", records=len(sent), error=str(error)
            )

    async def _send(self, records: Sequence[tuple[Record, Said]]) -> tuple[list[str], Exception | None]:
        answers = await self._publish(records)
        sent = [record.id for (record, _), answer in zip(records, answers, strict=True) if answer is None]
        errors = [answer for answer in answers if answer is not None]
        return sent, errors[0] if errors else None

    async def _sweep_for_ever(self) -> None:
        while True:
            try:
                await self._pool.execute("select ensure_partitions()")
                await self.sweep(older_than=min(1.0, self._sweep_seconds))
                depth, age = await self.depth()
                OUTBOX_DEPTH.set(depth)
                OUTBOX_AGE.set(age)
            except (NatsError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                _log.warning("the outbox could not be swept; trying again", error=words_of(error))
            except Exception:
                _log.exception("a record could not be published; it stays in the outbox")
            await asyncio.sleep(self._sweep_seconds)


async def _records(connection: Any, rows: Sequence[Any]) -> list[Record]:
    found = await connection.fetch(
        "select r.stream, r.seq, r.id, r.campaign, r.type, r.at, r.previous_hash, r.hash, r.body, r.entry, r.label, "
        "r.after, r.published from unnest($1::text[], $2::bigint[], $3::timestamptz[]) as o (stream, seq, at) "
        "join records as r on r.stream = o.stream and r.seq = o.seq and r.at = o.at order by o.at, o.stream, o.seq",
        [row["stream"] for row in rows],
        [row["seq"] for row in rows],
        [row["at"] for row in rows],
    )
    return [Record(*row) for row in found]
