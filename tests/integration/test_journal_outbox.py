"""From the journal to a real JetStream: nothing lost, nothing out twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest
from nats.js import JetStreamContext

from recorder.journal import Journal, JournalReader, Publisher, jetstream_publish
from recorder.journal.chain import Record
from takeback import json
from takeback.bus import connect, provision_streams
from takeback.database import connect_pool, service_url
from tests.integration.journal_units import change, journal_on, opened
from tests.servers import NatsServer


@asynccontextmanager
async def jetstream(nats_url: str) -> AsyncIterator[JetStreamContext]:
    client = await connect(nats_url, "test")
    js = client.jetstream()
    await provision_streams(js)
    try:
        yield js
    finally:
        await client.close()


@asynccontextmanager
async def publishing(postgres_url: str, js: JetStreamContext, sweep: float = 60.0) -> AsyncIterator[Publisher]:
    """A publisher on a pool of its own."""
    pool = await connect_pool(service_url(postgres_url, "recorder"), "recorder")
    publisher = Publisher(pool, jetstream_publish(js), sweep)
    await publisher.start()
    try:
        yield publisher
    finally:
        await publisher.stop()
        await pool.close()


async def received(js: JetStreamContext) -> list[dict]:  # type: ignore[type-arg]
    """Every event in the stream, in its order."""
    state = (await js.stream_info("TAKEBACK")).state
    subscription = await js.subscribe("takeback.>", ordered_consumer=True)
    events = [json.loads((await subscription.next_msg(timeout=5)).data) for _ in range(state.messages)]
    await subscription.unsubscribe()
    return events


async def drained(pool: asyncpg.Pool) -> None:
    while await pool.fetchval("select count(*) from outbox"):
        await asyncio.sleep(0.01)


async def write_run(journal: Journal, run: str, calls: int) -> None:
    await journal.append(opened(run))
    for number in range(calls):
        entry = f"ent_{run}_{number}"
        await journal.append(change("pending", entry=entry, run=run))
        await journal.append(change("committed", entry=entry, run=run, expect=["pending"], published=True))


async def test_what_is_committed_is_published_at_once_in_order_and_redacted(postgres_url: str, nats_url: str) -> None:
    """N6: the event says where its record stands; the compensation token never leaves."""
    async with (
        jetstream(nats_url) as js,
        publishing(postgres_url, js) as publisher,
        journal_on(postgres_url, committed=publisher.committed) as (journal, pool),
    ):
        await asyncio.gather(*(write_run(journal, f"run_{i}", 5) for i in range(4)))
        await drained(pool)
        events = await received(js)
        reader = JournalReader(pool)
        expected = {f"run_{i}": await reader.events(f"run_{i}") for i in range(4)}

    for run, of_run in expected.items():
        assert [event for event in events if event["subject"] == run] == of_run
        assert [event["data"]["after"] for event in of_run] == [0, *[event["data"]["seq"] for event in of_run[:-1]]]
    assert b"compensationToken" not in json.dumps(events)
    assert b"c2VjcmV0" not in json.dumps(events)


async def test_a_sweeper_publishes_what_nobody_published(postgres_url: str, nats_url: str) -> None:
    """J17: a crash after the commit loses no event."""
    async with journal_on(postgres_url) as (journal, pool):
        await write_run(journal, "run_1", 3)
        async with jetstream(nats_url) as js, publishing(postgres_url, js, sweep=0.05):
            await drained(pool)
            events = await received(js)

    assert [event["data"]["seq"] for event in events] == [1, 3, 5, 7]


async def test_many_sweepers_and_publishers_put_nothing_out_twice(postgres_url: str, nats_url: str) -> None:
    """J17: replicas share the outbox."""
    async with (
        jetstream(nats_url) as js,
        publishing(postgres_url, js, sweep=0.02) as one,
        publishing(postgres_url, js, sweep=0.02) as two,
        journal_on(postgres_url, committed=one.committed) as (first, pool),
        journal_on(postgres_url, committed=two.committed) as (second, _),
        journal_on(postgres_url) as (silent, _),
    ):
        writers = [first, second, silent] * 3
        await asyncio.gather(*(write_run(writers[i], f"run_{i}", 10) for i in range(9)))
        await drained(pool)
        await asyncio.gather(*(one.sweep() for _ in range(3)))
        events = await received(js)

    ids = [event["id"] for event in events]
    assert len(ids) == len(set(ids)) == 9 * 11


async def test_an_outage_of_jetstream_loses_nothing(postgres_url: str, nats_server: NatsServer) -> None:
    """J17: losing all of NATS loses no fact."""
    async with (
        jetstream(nats_server.url) as js,
        publishing(postgres_url, js, sweep=0.1) as publisher,
        journal_on(postgres_url, committed=publisher.committed) as (journal, pool),
    ):
        await write_run(journal, "run_1", 1)
        await drained(pool)
        await nats_server.kill()
        writing = asyncio.ensure_future(write_run(journal, "run_2", 3))
        await writing
        depth, _ = await publisher.depth()
        await nats_server.start()
        await drained(pool)
        events = await received(js)

    assert depth > 0
    ids = [event["id"] for event in events]
    assert len(ids) == len(set(ids)) == 2 + 4


async def test_a_record_that_cannot_go_out_holds_up_no_other(postgres_url: str) -> None:
    """N6: it stays in the outbox, where its age shows."""
    seen: list[str] = []

    async def publish(records: Sequence[tuple[Record, object]]) -> list[Exception | None]:
        streams = [record.stream for record, _ in records]
        seen.extend(stream for stream in streams if stream != "run_1")
        return [ValueError("no such subject") if stream == "run_1" else None for stream in streams]

    async with journal_on(postgres_url) as (journal, pool):
        for run in ("run_1", "run_2", "run_3"):
            await journal.append(opened(run))
        publisher = Publisher(pool, publish)
        with pytest.raises(ValueError, match="no such subject"):
            await publisher.sweep()
        depth, age = await publisher.depth()

    assert (seen, depth) == (["run_2", "run_3"], 1)
    assert age > 0
