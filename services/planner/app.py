"""The planner's composition root: settings, connections, use cases, doors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import asyncpg
from nats.aio.client import Client
from starlette.applications import Starlette

from planner import api
from planner.confirming import Confirming
from planner.decisions import Decisions
from planner.handlers import Handlers
from planner.planning import Planning
from planner.projection import apply, forget
from planner.settings import Settings
from planner.store import Store
from planner.undoing import Undoing
from planner.waiting import Waiting
from takeback import bus
from takeback.database import connect_pool
from takeback.errors import words_of
from takeback.inbox import Inbox, short_type
from takeback.messages.events import Event
from takeback.rpc import Rpc
from takeback.service import Service
from takeback.tasks import ended
from takeback.web import create_app

_CONNECTIONS = 20


class Planner:
    """The running planner: dependency graph and Reversal Plans, a projection of the journal."""

    name = "planner"

    def __init__(self, settings: Settings, pool: asyncpg.Pool, client: Client) -> None:
        self._pool = pool
        self._client = client
        waiting = Waiting()

        def applied(event: Event) -> None:
            if short_type(event) == "reversal.completed":
                waiting.ended(event.data["plan"])

        rpc = Rpc(client)
        inbox = Inbox(pool, rpc, self.name, apply, forget, applied)
        planning = Planning(Store(pool), inbox, rpc)
        decisions = Decisions(planning, inbox, rpc, waiting)
        self._handlers = Handlers(settings.nats_url, client, inbox, waiting, settings.sweep_seconds)
        self.app: Starlette = create_app("Takeback planner", self.not_ready)
        self.app.include_router(
            api.router(
                settings.verifier(),
                planning,
                decisions,
                Undoing(planning, decisions),
                Confirming(planning, inbox, rpc),
            )
        )

    async def start(self) -> None:
        """Begins to consume. Raises OSError or nats' errors without a server."""
        await self._handlers.start()

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """What looks after the consumer and compares the projection with the journal."""
        return self._handlers.background

    async def stop(self) -> None:
        """Finishes what is in hand and lets go of every connection."""
        await self._handlers.stop()
        await self._client.drain()
        await self._pool.close()

    async def not_ready(self) -> dict[str, str]:
        """What is wrong with the database, the bus or the projection."""
        wrong = self._handlers.wrong | ended(self.background)
        if not self._client.is_connected:
            wrong["nats"] = "not connected"
        try:
            await self._pool.fetchval("select 1")
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            wrong["postgres"] = words_of(error)
        return wrong


async def build(environ: Mapping[str, str]) -> Planner:
    """The planner as *environ* says (contract.md, Settings); connected, and not consuming yet."""
    settings = Settings.of(environ)
    pool = await connect_pool(settings.postgres_url, "planner", maximum=_CONNECTIONS)
    try:
        client = await bus.connect(settings.nats_url, "takeback planner")
    except BaseException:
        await pool.close()
        raise
    return Planner(settings, pool, client)


service = Service("planner", build)
