"""A service's durable consumer on the bus: FastStream's pull subscriber, and a watch that puts it back when it is lost.

A pull subscriber dies without a word when its consumer is deleted or its stream made again (facts.md). JetStream may also
lose what it acknowledged. So the watch looks after the consumer every second, and on each sweep the projection is compared
with the journal's heads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nats.errors
import nats.js.errors
import structlog
from faststream import AckPolicy
from faststream.exceptions import NackMessage
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub
from nats.aio.client import Client
from nats.js.api import ConsumerConfig

from takeback import json
from takeback.bus import provision_streams
from takeback.errors import Problem, words_of
from takeback.messages.events import Event
from takeback.subjects import EVENTS, STREAM
from takeback.tasks import end

log = structlog.get_logger()

_CHECK_SECONDS = 1.0
_PULL_SECONDS = 5.0
_RETRY_SECONDS = 1.0
# What cannot be applied is asked for again by each sweep; JetStream need not deliver it for ever.
_MAX_DELIVER = 20


class Consumer:
    """Hands every event to *receive*, one after another; *sweep* compares with the journal.

    *durable* names the consumer, shared by a service's replicas. `wrong` says what is not as it should be, for `/readyz`.
    """

    def __init__(
        self,
        url: str,
        client: Client,
        durable: str,
        receive: Callable[[Event], Awaitable[None]],
        sweep: Callable[[], Awaitable[None]],
        sweep_seconds: float = 5.0,
    ) -> None:
        self._client = client
        self._durable = durable
        self._receive = receive
        self._sweep = sweep
        self._sweep_seconds = sweep_seconds
        self._broker = NatsBroker(
            url,
            name=f"takeback {durable} consumer",
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,  # type: ignore[arg-type]  # nats-py takes fractions
            ack_policy=AckPolicy.NACK_ON_ERROR,
            apply_types=False,
            logger=None,
        )
        self._subscriber: Any = None
        self._watch: asyncio.Task[None] | None = None
        self._stuck: str | None = None
        self.wrong: dict[str, str] = {"events": "not started"}

    async def start(self) -> None:
        """Provisions the streams, begins to consume and to watch. Raises OSError or nats' errors without a server."""
        await self._broker.start()
        self._watch = asyncio.create_task(self._look_after(), name=f"{self._durable} watch")

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """What goes on from `start` to `stop`."""
        return [] if self._watch is None else [self._watch]

    async def stop(self) -> None:
        """Finishes the event in hand and lets go of the bus."""
        await end(self._watch)
        await self._broker.stop()

    async def _look_after(self) -> None:
        swept = 0.0
        while True:
            try:
                lost = not await self._is_consuming()
                if lost:
                    await self._consume_again()
                if lost or time.monotonic() - swept >= self._sweep_seconds:
                    await self._sweep()
                    swept = time.monotonic()
                self.wrong = {"events": self._stuck} if self._stuck else {}
            except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError, Problem) as error:
                self.wrong = {"events": f"behind: {words_of(error)}"}
                log.warning("events", wrong=self.wrong["events"])
            except Exception as error:
                # A defect in a projection: shown in readiness, and tried again, for the next version may know better.
                self.wrong = {"events": f"cannot apply: {error}"}
                log.exception("events", consumer=self._durable)
            await asyncio.sleep(_CHECK_SECONDS)

    async def _is_consuming(self) -> bool:
        if self._subscriber is None or not self._subscriber.tasks or any(t.done() for t in self._subscriber.tasks):
            return False
        try:
            await self._client.jetstream().consumer_info(STREAM, self._durable)
        except nats.js.errors.NotFoundError:
            return False
        return True

    async def _consume_again(self) -> None:
        if self._subscriber is not None:
            log.warning("the consumer was lost and is made again", consumer=self._durable)
            await self._subscriber.stop()
        await provision_streams(self._client.jetstream())
        self._subscriber = self._broker.subscriber(
            EVENTS,
            stream=JStream(STREAM, declare=False),
            durable=self._durable,
            # One at a time: a larger pull waits until it is full, and would hand its events over out of order.
            pull_sub=PullSub(batch_size=1, timeout=_PULL_SECONDS),
            config=ConsumerConfig(max_deliver=_MAX_DELIVER, ack_wait=30.0),
            decoder=_decode,
        )
        self._subscriber(self._take)
        await self._subscriber.start()

    async def _take(self, body: Any) -> None:
        try:
            await self._receive(Event.model_validate(body))
        except Exception as error:
            self._stuck = f"an event could not be applied: {error}"
            log.exception("an event could not be applied", consumer=self._durable)
            raise NackMessage(delay=_RETRY_SECONDS) from error
        self._stuck = None


async def _decode(message: NatsMessage) -> Any:
    return json.loads(message.body)
