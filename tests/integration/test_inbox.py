"""Ordered consumption on a real nats-server and PostgreSQL, whatever the bus does with the events."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from takeback import bus
from takeback.consumer import Consumer
from takeback.database import connect_pool
from takeback.errors import Problem
from takeback.inbox import Inbox
from takeback.messages.events import Event
from takeback.rpc import Rpc
from takeback.subjects import STREAM
from tests.integration.journal_stand_in import JournalStandIn
from tests.servers import NatsServer
from tests.waiting import eventually


class Notes:
    """A projection that keeps what it was told, in the order in which it was told."""

    def __init__(self, pool: asyncpg.Pool, inbox_rpc: Rpc) -> None:
        self.pool = pool
        self.told: list[int] = []
        self.poison: int | None = None
        self.inbox = Inbox(pool, inbox_rpc, "notes", self._apply, self._forget, lambda e: self.told.append(e.data["n"]))

    async def held(self, stream: str = "run_1") -> list[int]:
        rows = await self.pool.fetch("select n from notes where stream = $1 order by place", stream)
        return [row["n"] for row in rows]

    async def _apply(self, connection: asyncpg.Connection, event: Event) -> None:
        if event.data["n"] == self.poison:
            raise ValueError("cannot be applied")
        await connection.execute("insert into notes (stream, n) values ($1, $2)", event.data["stream"], event.data["n"])

    async def _forget(self, connection: asyncpg.Connection, stream: str) -> None:
        await connection.execute("delete from notes where stream = $1", stream)


class Lab:
    def __init__(self, client: Client, journal: JournalStandIn, notes: Notes, consumer: Consumer) -> None:
        self.client, self.journal, self.notes, self.consumer = client, journal, notes, consumer

    async def note(self, *numbers: int, stream: str = "run_1") -> list[Event]:
        made = [await self.journal.add("cmp_1", stream, "note.made", {"n": n, "campaign": "cmp_1"}) for n in numbers]
        return [Event.model_validate(event) for event in made]

    async def holds(self, *numbers: int) -> None:
        async def held() -> bool:
            return await self.notes.held() == list(numbers)

        await eventually(held)


@pytest.fixture
async def lab(empty_postgres_url: str, nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Lab]:
    connection = await asyncpg.connect(empty_postgres_url)
    await connection.execute(
        "create schema notes; create table notes.positions (stream text primary key, seq bigint not null, hash text not null);"
        "create table notes.notes (place bigserial, stream text, n int)"
    )
    await connection.close()
    pool = await connect_pool(empty_postgres_url, "notes")
    client = await bus.connect(nats_server.url, "lab")
    journal = JournalStandIn(client)
    await journal.start()
    notes = Notes(pool, Rpc(client, timeout_seconds=5))
    consumer = Consumer(nats_server.url, client, "notes", notes.inbox.receive, notes.inbox.catch_up_all, 0.2)
    try:
        yield Lab(client, journal, notes, consumer)
    finally:
        await consumer.stop()
        await client.close()
        await pool.close()


async def test_an_event_is_applied_once_however_often_it_comes(lab: Lab) -> None:
    """At least once on the bus is once in the projection."""
    (event,) = await lab.note(1)
    for _ in range(3):
        await lab.notes.inbox.receive(event)
    assert (await lab.notes.held(), lab.notes.told) == ([1], [1])


async def test_a_gap_is_fetched_from_the_journal_before_what_came_after_it(lab: Lab) -> None:
    """Consumers order by seq and after, and never wait for the bus to bring what is missing."""
    first, second, third = await lab.note(1, 2, 3)
    await lab.notes.inbox.receive(third)
    assert await lab.notes.held() == [1, 2, 3]
    await lab.notes.inbox.receive(first)
    await lab.notes.inbox.receive(second)
    assert await lab.notes.held() == [1, 2, 3]


async def test_a_stream_whose_hash_differs_is_read_again(lab: Lab) -> None:
    """The journal was restored to before what this projection holds, and went on otherwise."""
    for event in await lab.note(1, 2, 3):
        await lab.notes.inbox.receive(event)
    del lab.journal.streams["run_1"][1:]
    _, other = await lab.note(20, 30)
    await lab.notes.inbox.receive(other)
    assert await lab.notes.held() == [1, 20, 30]


async def test_a_tail_that_the_journal_lost_is_forgotten_when_heads_are_compared(lab: Lab) -> None:
    """No event tells of a loss; the sweep sees it."""
    for event in await lab.note(1, 2, 3):
        await lab.notes.inbox.receive(event)
    del lab.journal.streams["run_1"][1:]
    await lab.notes.inbox.catch_up_all()
    assert await lab.notes.held() == [1]


async def test_catching_up_reads_everything_acknowledged_without_the_bus(lab: Lab) -> None:
    """Read your own writes: nothing was published."""
    lab.journal.publishes = False
    await lab.note(1, 2)
    await lab.note(7, stream="run_2")
    await lab.notes.inbox.catch_up("cmp_1")
    assert (await lab.notes.held(), await lab.notes.held("run_2")) == ([1, 2], [7])


async def test_past_the_deadline_the_answer_is_behind(lab: Lab) -> None:
    """503, never an answer on old facts."""
    await lab.note(1)
    with pytest.raises(Problem) as refused:
        await lab.notes.inbox.catch_up("cmp_1", deadline_seconds=0)
    assert (refused.value.status, refused.value.slug) == (503, "behind")


async def test_one_stream_that_cannot_be_applied_holds_up_no_other(lab: Lab) -> None:
    """J11's kind, for projections."""
    lab.notes.poison = 1
    await lab.note(1)
    await lab.note(7, stream="run_2")
    with pytest.raises(ValueError, match="cannot be applied"):
        await lab.notes.inbox.catch_up_all()
    assert await lab.notes.held("run_2") == [7]


async def test_what_is_published_arrives(lab: Lab) -> None:
    """The durable pull consumer, in order, from before it was there."""
    await lab.note(1)
    await lab.consumer.start()
    await lab.holds(1)
    await lab.note(2, 3)
    await lab.holds(1, 2, 3)
    await eventually(lambda: lab.consumer.wrong == {})  # its first sweep may still be under way


async def test_an_event_that_could_not_be_applied_is_shown_and_tried_again(lab: Lab) -> None:
    """Readiness tells of it; it is applied once that is possible."""
    await lab.consumer.start()
    lab.notes.poison = 1
    await lab.note(1)

    async def shown() -> bool:
        return "applied" in lab.consumer.wrong.get("events", "") or "apply" in lab.consumer.wrong.get("events", "")

    await eventually(shown)
    lab.notes.poison = None
    await lab.holds(1)

    async def fine() -> bool:
        return lab.consumer.wrong == {}

    await eventually(fine)


async def test_a_deleted_consumer_is_made_again(lab: Lab, nats_url: str) -> None:
    """A pull subscriber dies without a word; the watch puts it back."""
    await lab.consumer.start()
    await lab.note(1)
    await lab.holds(1)
    client = await bus.connect(nats_url, "operator")
    await client.jetstream().delete_consumer(STREAM, "notes")
    await eventually(lambda: _consumes(client))
    await lab.note(2)
    await lab.holds(1, 2)
    await client.close()


async def _consumes(client: Client) -> bool:
    """Whether the stream and the consumer are there."""
    try:
        await client.jetstream().consumer_info(STREAM, "notes", timeout=1)
    except (NatsError, JetStreamError):
        return False
    return True


async def test_after_all_of_jetstream_is_lost_nothing_is_missing(lab: Lab, nats_server: NatsServer) -> None:
    """The journal holds the truth: what was never delivered is read from it, and nothing is applied twice."""
    await lab.consumer.start()
    await lab.note(1)
    await lab.holds(1)
    await nats_server.stop()
    nats_server.forget_streams()
    lab.journal.publishes = False
    await lab.note(2)
    await nats_server.start()
    await lab.holds(1, 2)
    lab.journal.publishes = True
    await eventually(lambda: _consumes(lab.client))
    await lab.note(3)
    await lab.holds(1, 2, 3)
    await eventually(lambda: lab.notes.told == [1, 2, 3])  # told after it is held
    await eventually(lambda: lab.consumer.wrong == {})
