"""The bus door: each event into the projection, then everybody who waits for it is woken."""

from __future__ import annotations

import asyncpg

from notifier import feed, projection
from notifier.announcements import Announcer
from notifier.hub import Hub
from takeback.inbox import Inbox, short_type
from takeback.messages.events import Event
from takeback.rpc import Rpc

HINT = "entry.pending"
"""A call that still runs after a second: a hint without a place in a stream, and live streams show it."""


class Handlers:
    """What happens with each event, and on each sweep."""

    def __init__(self, pool: asyncpg.Pool, rpc: Rpc, hub: Hub, announcer: Announcer) -> None:
        self._pool = pool
        self._hub = hub
        self._announcer = announcer
        self.inbox = Inbox(pool, rpc, "notifier", projection.apply, projection.forget, self._applied)

    async def receive(self, event: Event) -> None:
        """Applies an event of the journal, or shows a hint."""
        if short_type(event) == HINT:
            await self._show(event)
        else:
            await self.inbox.receive(event)

    async def sweep(self) -> None:
        """Reads what the bus has lost, and wakes whoever a lost wake-up has left waiting."""
        await self.inbox.catch_up_all()
        self._hub.wake_all()
        self._announcer.wake()

    def _applied(self, event: Event) -> None:
        self._hub.wake(projection.campaign_of(event))
        if projection.announces(event):
            self._announcer.wake()

    async def _show(self, event: Event) -> None:
        campaign = projection.campaign_of(event)
        async with self._pool.acquire() as connection, connection.transaction():
            await feed.append(connection, campaign, event)
        self._hub.wake(campaign)
