"""The planner's door on the bus: the journal's events, and the last event of each reversal for those who wait for it."""

from __future__ import annotations

import asyncio

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from planner.waiting import Waiting
from takeback import json
from takeback.consumer import Consumer
from takeback.errors import Problem
from takeback.inbox import Inbox
from takeback.messages.events import Event

log = structlog.get_logger()

_ENDED = "takeback.*.reversal.completed"


class Handlers:
    """Feeds the inbox. Replicas share one consumer; each hears for itself when a reversal ends."""

    def __init__(self, url: str, client: Client, inbox: Inbox, waiting: Waiting, sweep_seconds: float) -> None:
        self._client = client
        self._inbox = inbox
        self._waiting = waiting
        self._consumer = Consumer(url, client, "planner", inbox.receive, inbox.catch_up_all, sweep_seconds)
        self._ended: Subscription | None = None

    @property
    def wrong(self) -> dict[str, str]:
        """What is not as it should be, for readiness."""
        return self._consumer.wrong

    async def start(self) -> None:
        self._ended = await self._client.subscribe(_ENDED, cb=self._on_ended)
        await self._consumer.start()

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """What goes on from `start` to `stop`."""
        return self._consumer.background

    async def stop(self) -> None:
        await self._consumer.stop()
        if self._ended is not None and not self._client.is_closed:
            await self._ended.unsubscribe()

    async def _on_ended(self, message: Msg) -> None:
        event = Event.model_validate(json.loads(message.data))
        if not self._waiting.is_waited_for(event.data["plan"]):
            return  # the consumer applies it in its turn
        try:
            await self._inbox.receive(event)
        except Problem as problem:
            log.warning("the end of a reversal is read later", plan=event.data["plan"], why=problem.detail)
        self._waiting.ended(event.data["plan"])
