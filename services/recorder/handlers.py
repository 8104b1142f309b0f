"""The recorder's bus door: requests of the other services, each parse → use case → answer (design.md, Services)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from recorder.facts import Facts
from recorder.journal import JournalReader, JournalUnavailable
from recorder.reversing.observing import Observer
from takeback import bus, json
from takeback.errors import Problem, unavailable
from takeback.ids import new_id
from takeback.messages.rpc import (
    AppendRequest,
    HeadsRequest,
    ObserveRequest,
    RecordsRequest,
    RefusedRequest,
    StreamsRequest,
)
from takeback.subjects import RPC_APPEND, RPC_HEADS, RPC_OBSERVE, RPC_QUEUE, RPC_RECORDS, RPC_REFUSED, RPC_STREAMS
from takeback.web import validate

log = structlog.get_logger()

WAKE = "wake.recorder.reversals"
"""Says to every recorder that there may be a reversal to take; no fact, so nobody keeps it."""

Answer = Callable[[Any], Awaitable[dict[str, Any]]]


class BusDoor:
    """Answers on the bus; any replica answers any request (J17). *wake* is called when another recorder says so."""

    def __init__(
        self, client: Client, reader: JournalReader, observer: Observer, facts: Facts, wake: Callable[[], None]
    ) -> None:
        self._client = client
        self._reader = reader
        self._observer = observer
        self._facts = facts
        self._wake = wake
        self._me = new_id("rec").encode()
        self._subscriptions: list[Subscription] = []
        self._running: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to answer."""
        answers: dict[str, Answer] = {
            RPC_HEADS: self.heads,
            RPC_RECORDS: self.records,
            RPC_STREAMS: self.streams,
            RPC_OBSERVE: self.observe,
            RPC_APPEND: self.append,
            RPC_REFUSED: self.refused,
        }
        for subject, answer in answers.items():
            self._subscriptions.append(
                await self._client.subscribe(subject, queue=RPC_QUEUE, cb=self._received(answer))
            )
        self._subscriptions.append(await self._client.subscribe(WAKE, cb=self._woken))
        await bus.settle(self._client)

    async def stop(self) -> None:
        """Take no more requests, and finish those that are here."""
        for subscription in self._subscriptions:
            await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py leaves it untyped
        if self._running:
            await asyncio.wait(set(self._running))

    async def announce(self) -> None:
        """Tell the other recorders that there may be a reversal to take; where the bus is away their sweep finds it."""
        try:
            await self._client.publish(WAKE, self._me)
        except NatsError as error:
            log.info("other recorders find the reversal at their next sweep", error=str(error))

    async def heads(self, request: Any) -> dict[str, Any]:
        """``rpc.recorder.heads``"""
        wanted = validate(request, HeadsRequest)
        heads, now = await self._reader.heads(wanted.campaign, wanted.moved_since)
        unsettled = await self._reader.unsettled(wanted.campaign)
        return {
            "streams": [{"stream": head.stream, "seq": head.seq, "hash": head.hash} for head in heads],
            "now": now,
            "unsettled": [{"entry": stored.public} for stored in unsettled],
        }

    async def records(self, request: Any) -> dict[str, Any]:
        """``rpc.recorder.records``"""
        wanted = validate(request, RecordsRequest)
        return {"events": await self._reader.events(wanted.stream, wanted.after, wanted.limit)}

    async def streams(self, request: Any) -> dict[str, Any]:
        """``rpc.recorder.streams``"""
        wanted = validate(request, StreamsRequest)
        page, cursor = await self._reader.streams(wanted.campaign, wanted.cursor, wanted.limit)
        return {"streams": [head.wire() for head in page], **({"next": cursor} if cursor else {})}

    async def observe(self, request: Any) -> dict[str, Any]:
        """``rpc.recorder.observe``"""
        wanted = validate(request, ObserveRequest)
        items = [item.wire() for item in wanted.items]
        return {"observations": await self._observer.items(wanted.campaign, items)}

    async def append(self, request: Any) -> dict[str, Any]:
        """``rpc.recorder.append``"""
        recorded = await self._facts.append(validate(request, AppendRequest))
        return {"seq": recorded.seq, "stream": recorded.stream}

    async def refused(self, request: Any) -> dict[str, Any]:
        """``rpc.recorder.refused``"""
        return await self._facts.refused(validate(request, RefusedRequest))

    async def _woken(self, message: Msg) -> None:
        if message.data != self._me:
            self._wake()

    def _received(self, answer: Answer) -> Callable[[Msg], Awaitable[None]]:
        async def received(message: Msg) -> None:
            # A task each: one slow tool server must not hold up the others.
            task = asyncio.create_task(self._reply(message, answer))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

        return received

    async def _reply(self, message: Msg, answer: Answer) -> None:
        try:
            document: dict[str, Any] = {"ok": await answer(json.parse(message.data))}
        except Problem as problem:
            document = {"problem": problem.document()}
        except (JournalUnavailable, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            log.warning("request could not be answered", subject=message.subject, error=str(error))
            away = unavailable(
                "journal-unavailable", f"The journal is away: {error}. Sent again it is carried out once."
            )
            document = {"problem": away.document()}
        except Exception:
            log.exception("request failed", subject=message.subject)
            defect = Problem(500, "defect", "This is a defect of Takeback. What was changed is in the journal.")
            document = {"problem": defect.document()}
        await message.respond(json.dumps(document))
