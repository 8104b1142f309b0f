"""Ordered consumption: a projection that holds each stream's events once, in order, whatever the bus did with them.

PostgreSQL holds the truth and JetStream only carries it (design.md, principle 1). So an event is applied when it follows
the position that is stored beside the projection; what is missing is fetched from the journal, and a stream whose hash
differs (the journal was restored) is forgotten and read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import asyncpg
import structlog

from takeback.errors import Problem, unavailable
from takeback.messages.events import Chained, Event
from takeback.metrics import EVENTS_APPLIED, PROJECTION_LAG
from takeback.rpc import Rpc
from takeback.subjects import RPC_HEADS, RPC_RECORDS, RPC_STREAMS, TYPE_PREFIX

log = structlog.get_logger()

BATCH = 500
_FOLLOW = "update positions set seq = $3, hash = $4 where stream = $1 and seq = $2 returning true"
Apply = Callable[[Any, Event], Awaitable[None]]
Forget = Callable[[Any, str], Awaitable[None]]


class Place(Enum):
    """Where an event stands to what a projection holds of its stream."""

    NEXT = "next"
    KNOWN = "known"
    GAP = "gap"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Position:
    """The last event of a stream that a projection holds; *seq* 0 before the first."""

    seq: int = 0
    hash: str = ""


def place(position: Position, event: Chained) -> Place:
    """Where *event* stands to *position*; foreign says that the journal is not the one that was read before."""
    if event.seq == position.seq:
        return Place.KNOWN if event.hash == position.hash else Place.FOREIGN
    if event.seq < position.seq:
        return Place.KNOWN
    if event.after == position.seq:
        return Place.NEXT
    return Place.GAP if event.after > position.seq else Place.FOREIGN


def short_type(event: Event) -> str:
    """The event's type without its prefix, as it stands in the subject."""
    return event.type.removeprefix(TYPE_PREFIX)


class Inbox:
    """Applies events to the projection that *pool* reaches, each in one transaction with its stream's position.

    *apply* writes one event, *forget* removes everything that came from one stream; both run in the given transaction and
    commit nothing. *applied* is told of each event once, after its commit. *pool* has the service's schema as its search
    path (`database.connect_pool`), with ``positions(stream text primary key, seq bigint not null, hash text not null)``.
    *service* names the metrics.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        rpc: Rpc,
        service: str,
        apply: Apply,
        forget: Forget,
        applied: Callable[[Event], None] | None = None,
    ) -> None:
        self._pool = pool
        self._rpc = rpc
        self._service = service
        self._apply = apply
        self._forget = forget
        self._applied = applied
        self._caught_up_at: dict[str, str] = {}

    async def receive(self, event: Event) -> None:
        """Applies *event* and whatever is missing before it; an event that is known already changes nothing.

        An event without a place in a stream (a broadcast, a hint) is none of the journal's, and is left alone.
        """
        if "seq" not in event.data or "stream" not in event.data:
            return
        chained = Chained.model_validate(event.data)
        if await self._follow(event, chained):
            return
        match await self._write(chained.stream, [event]):
            case Place.GAP:
                await self._read_on(chained.stream)
            case Place.FOREIGN:
                await self.read_again(chained.stream)

    async def catch_up(self, campaign: str, deadline_seconds: float = 5.0) -> dict[str, Any]:
        """Waits for everything that was acknowledged in *campaign* before this call; answers the recorder's heads.

        Raises `Problem` 503 ``behind`` past the deadline: never an answer on old facts.
        """
        try:
            async with asyncio.timeout(deadline_seconds):
                asked: dict[str, Any] = {"campaign": campaign}
                if (since := self._caught_up_at.get(campaign)) is not None:
                    asked["movedSince"] = since
                heads = await self._rpc.request(RPC_HEADS, asked)
                await self._reach(heads["streams"])
        except TimeoutError as error:
            raise unavailable(
                "behind", "The newest records could not be read in time. Nothing was changed; try again."
            ) from error
        self._caught_up_at[campaign] = heads["now"]
        return heads

    async def catch_up_stream(self, stream: str) -> None:
        """Applies what the journal holds of *stream*, for one whose campaign is not known yet."""
        await self._read_on(stream)

    async def catch_up_all(self) -> None:
        """Reaches the heads of all streams: at the start, when a JetStream stream was made again, and on each sweep."""
        behind = 0
        cursor: str | None = None
        while True:
            page = await self._rpc.request(RPC_STREAMS, {"cursor": cursor} if cursor else {})
            behind += await self._reach(page["streams"])
            cursor = page.get("next")
            if cursor is None:
                break
        PROJECTION_LAG.labels(self._service).set(behind)

    async def _reach(self, heads: list[dict[str, Any]]) -> int:
        """Reads what is missing of each stream in *heads*; answers by how many seqs the projection was behind."""
        streams = [head["stream"] for head in heads]
        rows = await self._pool.fetch("select stream, seq, hash from positions where stream = any($1)", streams)
        held = {row["stream"]: Position(row["seq"], row["hash"]) for row in rows}
        behind = 0
        failed: list[Exception] = []
        for head in heads:
            position = held.get(head["stream"], Position())
            behind += max(0, head["seq"] - position.seq)
            try:
                await self._reach_one(head, position)
            except Problem:
                raise
            except Exception as error:  # one stream that cannot be applied holds up no other
                log.exception("a stream cannot be applied", stream=head["stream"], service=self._service)
                failed.append(error)
        if failed:
            raise failed[0]
        return behind

    async def _reach_one(self, head: dict[str, Any], position: Position) -> None:
        stream = head["stream"]
        if head["seq"] == position.seq and (head["hash"] == position.hash or head["seq"] == 0):
            return
        if head["seq"] > position.seq:
            await self._read_on(stream)
        elif head["seq"] == position.seq or not await self._still_there(stream, position):
            await self.read_again(stream)

    async def _still_there(self, stream: str, position: Position) -> bool:
        """Whether the journal holds the record at *position*: else it was restored to before it."""
        page = await self._rpc.request(RPC_RECORDS, {"stream": stream, "after": position.seq - 1, "limit": 1})
        events = [Event.model_validate(event) for event in page["events"]]
        return bool(events) and place(position, Chained.model_validate(events[0].data)) is Place.KNOWN

    async def _read_on(self, stream: str) -> None:
        """Applies what the journal holds of *stream* after the projection's position."""
        while True:
            row = await self._pool.fetchrow("select seq from positions where stream = $1", stream)
            events = await self._records(stream, row["seq"] if row else 0)
            if not events:
                return
            if await self._write(stream, events) in (Place.FOREIGN, Place.GAP):
                await self.read_again(stream)
                return

    async def read_again(self, stream: str) -> None:
        """Forgets *stream* and applies it from its first record, in one transaction: nobody sees half of it."""
        log.info("a stream is read again", stream=stream, service=self._service)
        async with self._pool.acquire() as connection, connection.transaction():
            await self._lock(connection, stream)
            await self._forget(connection, stream)
            position = Position()
            while events := await self._records(stream, position.seq):
                for event in events:
                    await self._apply(connection, event)
                last = Chained.model_validate(events[-1].data)
                position = Position(last.seq, last.hash)
            await self._move(connection, stream, position)

    async def _follow(self, event: Event, chained: Chained) -> bool:
        """Applies *event* where it is the next of its stream, as nearly all are: one statement asks, locks and moves on."""
        async with self._pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(_FOLLOW, chained.stream, chained.after, chained.seq, chained.hash):
                return False
            await self._apply(connection, event)
        self._tell(event)
        return True

    async def _write(self, stream: str, events: list[Event]) -> Place:
        """Applies those of *events* that follow; answers the place of the first one that neither follows nor is known."""
        done: list[Event] = []
        verdict = Place.NEXT
        async with self._pool.acquire() as connection, connection.transaction():
            position = await self._lock(connection, stream)
            for event in events:
                chained = Chained.model_validate(event.data)
                where = place(position, chained)
                if where in (Place.GAP, Place.FOREIGN):
                    verdict = where
                    break
                if where is Place.NEXT:
                    await self._apply(connection, event)
                    position = Position(chained.seq, chained.hash)
                    done.append(event)
            if done:
                await self._move(connection, stream, position)
        for event in done:
            self._tell(event)
        return verdict

    def _tell(self, event: Event) -> None:
        EVENTS_APPLIED.labels(self._service, short_type(event)).inc()
        if self._applied is not None:
            self._applied(event)

    async def _records(self, stream: str, after: int) -> list[Event]:
        page = await self._rpc.request(RPC_RECORDS, {"stream": stream, "after": after, "limit": BATCH})
        return [Event.model_validate(event) for event in page["events"]]

    async def _lock(self, connection: Any, stream: str) -> Position:
        # Two replicas may hold events of one stream: the row's lock puts them in order.
        await connection.execute("insert into positions values ($1, 0, '') on conflict do nothing", stream)
        row = await connection.fetchrow("select seq, hash from positions where stream = $1 for update", stream)
        return Position(row["seq"], row["hash"])

    async def _move(self, connection: Any, stream: str, position: Position) -> None:
        await connection.execute(
            "update positions set seq = $2, hash = $3 where stream = $1",
            stream,
            position.seq,
            position.hash,
        )


async def rebuild(pool: asyncpg.Pool, tables: list[str], inbox: Inbox) -> None:
    """Drops what *tables* hold and reads everything from the journal again (`takeback rebuild`).

    Nothing is announced again: the inbox of a rebuild is made without *applied*. Raises `Problem` when no recorder answers;
    then the projection is incomplete until the next sweep of a running service.
    """
    await pool.execute(f"truncate {', '.join([*tables, 'positions'])}")
    await inbox.catch_up_all()
