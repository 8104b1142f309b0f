"""The composition root: settings → pool, bus, projection, live streams, routes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import asyncpg
import httpx
from nats.aio.client import Client
from starlette.applications import Starlette

from notifier import api
from notifier.announcements import Announcer
from notifier.console.console import Console
from notifier.console.oidc import Issuer
from notifier.console.sessions import Sessions
from notifier.deadlines import Deadlines
from notifier.deliveries.composition import Deliveries
from notifier.feed import Feed
from notifier.handlers import Handlers
from notifier.hub import Hub
from notifier.idempotency import Idempotency
from notifier.lapsing import Lapsing
from notifier.measuring import Measuring
from notifier.members import Members
from notifier.outgoing import Messages
from notifier.questions import Questions
from notifier.queue import Queue
from notifier.reminding import Reminding
from notifier.reviews import Reviews
from notifier.roles import Roles
from notifier.settings import Settings
from notifier.streams import Streams
from notifier.tickets import Tickets
from notifier.trimming import Trimming
from notifier.watch import Watch
from takeback import bus
from takeback.calendars import Calendars
from takeback.consumer import Consumer
from takeback.database import connect_pool
from takeback.errors import words_of
from takeback.outbound import guarded_client
from takeback.rpc import Rpc
from takeback.service import Service
from takeback.tasks import end, ended
from takeback.web import create_app


class Notifier:
    """The notifier, built; `start` begins to consume."""

    name = "notifier"

    def __init__(self, settings: Settings, pool: asyncpg.Pool, client: Client) -> None:
        self._pool = pool
        self._client = client
        rpc = Rpc(client)
        feed = Feed(pool, settings.feed_retention_seconds)
        members = Members(pool)
        tickets = Tickets(pool, settings.ticket_seconds)
        idempotency = Idempotency(pool)
        verifier = settings.verifier()
        self._hub = Hub(feed, members, client, settings.stream_queue_events)
        self._announcer = Announcer(pool, client, settings.sweep_seconds)
        self.handlers = handlers = Handlers(pool, rpc, self._hub, self._announcer)
        self._consumer = Consumer(
            settings.nats_url, client, "notifier", handlers.receive, handlers.sweep, settings.sweep_seconds
        )
        self._feeds = guarded_client(allow_private=settings.webhook_allow_private)
        calendars = Calendars(self._feeds)
        deadlines = Deadlines(calendars)
        reviews = Reviews(pool, handlers.inbox, rpc, members, deadlines, settings.catch_up_seconds)
        streams = Streams(self._hub, reviews, tickets, verifier, settings.stream_send_seconds)
        app = create_app("Takeback notifier", self.not_ready)
        questions, measuring = Questions(pool, reviews), Measuring(pool, reviews)
        queue = Queue(pool, reviews, deadlines)
        app.include_router(
            api.router(reviews, tickets, idempotency, verifier, self._hub, self._announcer, questions, queue, measuring)
        )
        app.include_router(streams.router())
        self._deliveries = Deliveries(pool, settings.deliveries(), reviews, rpc, idempotency, verifier)
        app.include_router(self._deliveries.doors)
        sessions = Sessions(pool, verifier, settings.console_session_seconds)
        http = httpx.AsyncClient(limits=httpx.Limits(max_connections=200))
        client_of_issuer = settings.console_client()
        issuer = Issuer(client_of_issuer, http, verifier) if client_of_issuer is not None else None
        self._console = Console(sessions, http, settings.console_api_url, issuer)
        app.router.routes.extend(self._console.routes())
        self.app: Starlette = app
        self._trimming = Trimming(
            feed, tickets, idempotency, sessions, self._announcer, self._deliveries.ledger, Messages(pool)
        )
        self._watch = Watch(
            pool,
            Reminding(pool, calendars),
            Lapsing(pool, rpc, handlers.inbox, settings.catch_up_seconds),
            Roles(pool, handlers.inbox, settings.catch_up_seconds, self._announced),
            calendars,
            settings.reminder_poll_seconds,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begins to consume, to publish what is due and to serve live streams."""
        await self._hub.start()
        self._tasks = [
            asyncio.create_task(self._announcer.run(), name="notifier announcer"),
            asyncio.create_task(self._trimming.run(), name="notifier trimming"),
            asyncio.create_task(self._deliveries.worker.run(), name="notifier deliveries"),
            asyncio.create_task(self._watch.run(), name="notifier watch"),
            asyncio.create_task(self._watch.tell_journal(), name="notifier lapses"),
            asyncio.create_task(self._watch.read_feeds(), name="notifier absences"),
        ]
        await self._consumer.start()

    async def stop(self) -> None:
        """Ends the live streams, finishes the event in hand, lets go of the bus and the database."""
        await self._hub.stop()
        await self._consumer.stop()
        await end(*self._tasks)
        await self._console.close()
        await self._feeds.aclose()
        await self._deliveries.close()
        await self._client.close()
        await self._pool.close()

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """Consuming, publishing, delivering, and looking after windows and live streams."""
        return [*self._tasks, *self._consumer.background, *self._hub.background]

    def _announced(self, campaign: str) -> None:
        self._hub.wake(campaign)
        self._announcer.wake()

    async def not_ready(self) -> dict[str, str]:
        """What is wrong, by part."""
        wrong = self._consumer.wrong | ended(self.background)
        if not self._client.is_connected:
            wrong["bus"] = "not connected"
        try:
            async with asyncio.timeout(2):
                await self._pool.execute("select 1")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            wrong["database"] = words_of(error)
        return wrong


async def build(environ: Mapping[str, str]) -> Notifier:
    """The notifier as *environ* says; raises when the database or the bus cannot be reached."""
    settings = Settings.of(environ)
    pool = await connect_pool(settings.postgres_url, "notifier")
    try:
        client = await bus.connect(settings.nats_url, "takeback notifier")
    except BaseException:
        await pool.close()
        raise
    return Notifier(settings, pool, client)


service = Service("notifier", build)
