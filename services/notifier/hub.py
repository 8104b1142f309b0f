"""The hub: hands each new event of the feed to every client that listens on this replica (N6).

An event is committed to the feed first; then the replica that did it wakes the others over core NATS, and each reads what
it lacks from the table. A lost wake-up costs time until the next one, never an event. Nobody waits for a slow client: its
queue is bounded, and when it is full that client is dropped and may resume where it was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from notifier.feed import PAGE, Cursor, Fed, Feed
from notifier.members import Members
from takeback import json
from takeback.auth import Caller
from takeback.metrics import STREAM_CLIENTS
from takeback.tasks import end

log = structlog.get_logger()
WAKE = "notifier.feed."
"""Core NATS subject, followed by the campaign: there is something new in its feed."""
_RETRY_SECONDS = 0.5
_ACCESS = ("member.changed", "agent.changed")


class Ended(Exception):
    """A live stream ends. *code* is WebSocket's (RFC 6455), the message says why and what to do."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def removed() -> Ended:
    """The listener is no member any more."""
    return Ended(1008, "You are no longer a member of this campaign.")


def too_slow() -> Ended:
    """The listener's queue was full."""
    return Ended(1013, "You read too slowly and were dropped. Connect again and resume after your last id.")


def closing() -> Ended:
    """The service stops."""
    return Ended(1012, "The notifier restarts. Connect again and resume after your last id.")


class Listener:
    """One client: a bounded queue of what it has not taken yet, beginning after number *after*."""

    def __init__(self, caller: Caller, after: int, limit: int) -> None:
        self.caller = caller
        self._after = after
        self._limit = limit
        self._waiting: deque[Fed] = deque()
        self._ended: Ended | None = None
        self._changed = asyncio.Event()

    def offer(self, fed: Fed) -> None:
        """Queues *fed*; ends the listener when its queue is full. Never waits."""
        if fed.seq <= self._after or self._ended is not None:
            return
        if len(self._waiting) >= self._limit:
            self.end(too_slow())
            return
        self._after = fed.seq
        self._waiting.append(fed)
        self._changed.set()

    def end(self, why: Ended) -> None:
        """Ends it; what is still queued is not delivered."""
        self._ended = self._ended or why
        self._waiting.clear()
        self._changed.set()

    async def take(self) -> Fed:
        """The next event; raises `Ended`."""
        while not self._waiting:
            if self._ended is not None:
                raise self._ended
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popleft()

    @property
    def ended(self) -> Ended | None:
        """Why it ended, None while it lives."""
        return self._ended


class Hub:
    """One replica's listeners, by campaign."""

    def __init__(self, feed: Feed, members: Members, nats: Client, queue_events: int) -> None:
        self._feed = feed
        self._members = members
        self._nats = nats
        self._queue_events = queue_events
        self._tails: dict[str, _Tail] = {}
        self._me = uuid4().hex.encode()
        self._untold: set[str] = set()
        self._outward = asyncio.Event()
        self._telling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to hear the other replicas, and to tell them."""
        await self._nats.subscribe(f"{WAKE}*", cb=self._on_wake)
        self._telling = asyncio.create_task(self._tell_others(), name="notifier wake-ups")

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """What goes on from `start` to `stop`."""
        return [] if self._telling is None else [self._telling]

    async def stop(self) -> None:
        """End every listener."""
        for tail in list(self._tails.values()):
            tail.end(closing())
        await end(self._telling)

    def wake(self, campaign: str) -> None:
        """Something was committed to the feed of *campaign*: tell the listeners here, and soon the other replicas."""
        self._wake_here(campaign)
        self._untold.add(campaign)
        self._outward.set()

    def wake_all(self) -> None:
        """Read every campaign's feed that somebody listens to: whatever wake-up was lost (the sweep does this)."""
        for tail in self._tails.values():
            tail.wake()

    @asynccontextmanager
    async def listening(self, campaign: str, caller: Caller, after: int) -> AsyncIterator[AsyncIterator[Fed]]:
        """Everything in the feed after number *after*, then what comes; the iterator raises `Ended`."""
        head = 0 if campaign in self._tails else await self._feed.head(campaign)
        tail = self._tails.get(campaign)
        if tail is None:
            tail = self._tails[campaign] = _Tail(campaign, self._feed, self._members, head)
        position = tail.position
        listener = Listener(caller, max(after, position), self._queue_events)
        tail.listeners.add(listener)
        STREAM_CLIENTS.inc()
        try:
            # Asked again now that a change would be noticed: between the door's check and here it might have come.
            if await self._members.standing(campaign, caller) is None:
                listener.end(removed())
            yield self._events(campaign, after, position, listener)
        finally:
            STREAM_CLIENTS.dec()
            tail.listeners.discard(listener)
            if not tail.listeners and self._tails.get(campaign) is tail:
                del self._tails[campaign]
                await tail.stop()

    async def place(self, campaign: str, cursor: str | None) -> tuple[Cursor, bool]:
        """Where a client with the last id *cursor* goes on, and whether it must reset: events that it lacks are gone."""
        epoch = await self._feed.epoch()
        asked = Cursor.of(cursor) if cursor else None
        if asked is not None and asked.epoch == epoch and await self._feed.reaches(campaign, asked.seq):
            return asked, False
        return Cursor(epoch, await self._feed.head(campaign)), bool(cursor)

    async def _events(self, campaign: str, after: int, until: int, listener: Listener) -> AsyncIterator[Fed]:
        """The table up to where the listener's queue begins, then the queue."""
        while after < until and listener.ended is None:
            page = [fed for fed in await self._feed.read(campaign, after) if fed.seq <= until]
            if not page:
                break
            for fed in page:
                after = fed.seq
                if listener.ended is None and (shown := seen_by(fed, listener.caller)):
                    yield shown
        while True:
            if shown := seen_by(await listener.take(), listener.caller):
                yield shown

    async def _tell_others(self) -> None:
        while True:
            await self._outward.wait()
            self._outward.clear()
            while self._untold:
                campaign = self._untold.pop()
                try:
                    await self._nats.publish(WAKE + campaign, self._me)
                except NatsError as error:
                    log.warning("other replicas read the feed at their next sweep", campaign=campaign, error=str(error))

    async def _on_wake(self, message: Msg) -> None:
        if message.data != self._me:
            self._wake_here(message.subject.removeprefix(WAKE))

    def _wake_here(self, campaign: str) -> None:
        if tail := self._tails.get(campaign):
            tail.wake()


_HIDDEN_FROM_AGENTS: dict[str, dict[str, str | None]] = {
    "member.changed": {"email": None},
    "approval.requested": {"why": "A person has to agree."},
}
"""Members of an event's data that an agent reads something else in."""


def seen_by(fed: Fed, caller: Caller) -> Fed | None:
    """*fed* as *caller* may see it: an agent sees no policy, nor why a person is asked (P10), and nobody's address."""
    if caller.kind != "agent":
        return fed
    if fed.type == "policy.changed":
        return None
    if (hidden := _HIDDEN_FROM_AGENTS.get(fed.type)) is None:
        return fed
    event = json.loads(fed.event)
    event["data"] |= hidden
    return Fed(fed.seq, fed.type, json.dumps(event))


class _Tail:
    """Follows one campaign's feed while somebody here listens to it."""

    def __init__(self, campaign: str, feed: Feed, members: Members, position: int) -> None:
        self.listeners: set[Listener] = set()
        self.position = position  # read up to here; later ones reach the listeners that are there by then
        self._campaign = campaign
        self._feed = feed
        self._members = members
        self._woken = asyncio.Event()
        self._woken.set()  # whatever came since *position* was asked for
        self._following = asyncio.create_task(self._follow())

    def wake(self) -> None:
        self._woken.set()

    def end(self, why: Ended) -> None:
        for listener in self.listeners:
            listener.end(why)

    async def stop(self) -> None:
        await end(self._following)

    async def _follow(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                more = True
                while more:
                    page = await self._feed.read(self._campaign, self.position)
                    for fed in page:
                        await self._hand_over(fed)
                    more = len(page) == PAGE
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                log.warning("feed cannot be read, trying again", campaign=self._campaign, error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                self._woken.set()

    async def _hand_over(self, fed: Fed) -> None:
        if fed.type in _ACCESS:
            await self._cut_off(json.loads(fed.event)["data"])
        self.position = fed.seq
        for listener in self.listeners:
            listener.offer(fed)

    async def _cut_off(self, changed: dict[str, str]) -> None:
        """End the listeners of whom *changed* names and who is not in the campaign any more."""
        whom = changed.get("sub") or changed.get("name")
        for listener in [one for one in self.listeners if one.caller.sub == whom]:
            if await self._members.standing(self._campaign, listener.caller) is None:
                listener.end(removed())
