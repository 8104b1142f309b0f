"""The composition root: settings → database, bus, lock, journal, use cases, doors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import asyncpg
import structlog
from nats.aio.client import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from recorder import calls, mcp_door, reversing
from recorder.api import approvals as approvals_api
from recorder.api import calls as calls_api
from recorder.api import campaigns as campaigns_api
from recorder.api import entries as entries_api
from recorder.api import runs as runs_api
from recorder.campaigns import Campaigns
from recorder.facts import Facts
from recorder.handlers import BusDoor
from recorder.journal import Journal, JournalReader, JournalUnavailable, Publisher, Unwritable, Vault, jetstream_publish
from recorder.journal.checkpoints import Checkpoints
from recorder.journal.dsse import Signer
from recorder.journal.export import Exporter
from recorder.runs import Runs
from recorder.security_log import SecurityLog
from recorder.serial import Serial
from recorder.servers import Servers
from recorder.settings import Settings
from recorder.sweeping import Sweep
from recorder.toolport.port import OBSERVE_SECONDS
from recorder.toolport.secrets import unbound
from takeback import bus
from takeback.calendars import Calendars
from takeback.database import connect_pool
from takeback.errors import invalid, unavailable, words_of
from takeback.locks import Locks, LockUnavailable
from takeback.outbound import guarded_client
from takeback.service import Service
from takeback.tasks import ended
from takeback.web import create_app, problem_response

_CHECKPOINT_SECONDS = 60.0

log = structlog.get_logger()


class Recorder:
    """The recorder, built; `start` opens its doors. Any number of them serve the same campaigns (J17)."""

    name = "recorder"

    def __init__(self, settings: Settings, environ: Mapping[str, str], pool: asyncpg.Pool, client: Client) -> None:
        self._pool = pool
        self._client = client
        self._publisher = Publisher(pool, jetstream_publish(client.jetstream()), settings.sweep_seconds)
        self._journal = journal = Journal(settings.postgres_url, pool, self._publisher.committed)
        self._locks = locks = Locks(settings.redis_url)
        reader, vault = JournalReader(pool), Vault.from_keys(pool, settings.keys_dir)
        signer = Signer.from_keys(settings.keys_dir)
        self._feeds = guarded_client(allow_private=settings.webhook_allow_private)
        calendars = Calendars(self._feeds)
        self._absences = Sweep("absences", calendars.refresh, settings.sweep_seconds)
        campaigns = Campaigns(pool, journal, SecurityLog(pool), calendars)
        runs = Runs(pool, journal, campaigns)
        observe_deadline = min(OBSERVE_SECONDS, settings.forward_deadline_seconds)
        self._servers = servers = Servers(pool, journal, campaigns, client, settings, environ)
        self._reversing = reversing.build(
            pool=pool,
            journal=journal,
            reader=reader,
            vault=vault,
            serial=Serial(
                locks,
                # An undo and the reads around it end by these deadlines; the lease outlives them.
                lease_seconds=2 * settings.forward_deadline_seconds + 2 * observe_deadline,
                wait_seconds=settings.lock_wait_seconds,
            ),
            campaigns=campaigns,
            ports=servers,
            signer=signer,
            announce=self._announce,
            undo_deadline=settings.forward_deadline_seconds,
            observe_deadline=observe_deadline,
            sweep_seconds=settings.sweep_seconds,
        )
        self._calls = calls.put_together(
            settings=settings,
            pool=pool,
            journal=journal,
            vault=vault,
            campaigns=campaigns,
            runs=runs,
            servers=servers,
            locks=locks,
            nats=client,
            resolve_reversal=self._reversing.settling.resolve,
        )
        facts = Facts(journal, reader, campaigns, self._reversing.deciding)
        self._bus_door = BusDoor(client, reader, self._reversing.observer, facts, self._reversing.runner.wake)
        exporter = Exporter(pool, Checkpoints.beside(settings.keys_dir))
        self._checkpoints = Sweep("checkpoints", exporter.checkpoint, _CHECKPOINT_SECONDS)
        self._mcp_door = mcp_door.build(
            verifier=settings.verifier(),
            pool=pool,
            nats=client,
            keys_dir=settings.keys_dir,
            runs=runs,
            campaigns=campaigns,
            servers=servers,
            recording=self._calls.recording,
            reader=reader,
            vault=vault,
            group_reader=self._calls.group_reader,
            forward_seconds=settings.forward_deadline_seconds,
            public_url=settings.public_url,
        )
        self.app = self._routes(settings, campaigns, runs, servers, exporter)

    async def start(self) -> None:
        """Begins to write, to publish, to answer the bus and to carry on what a crash left behind."""
        await self._journal.start()
        await self._publisher.start()
        await self._bus_door.start()
        await self._reversing.runner.start()
        await self._calls.start()
        await self._checkpoints.start()
        await self._absences.start()

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """Writing, publishing, running reversals, and the sweeps."""
        parts = (self._journal, self._publisher, self._reversing.runner, self._calls, self._checkpoints, self._absences)
        return [task for part in parts for task in part.background]

    async def stop(self) -> None:
        """Takes nothing new, finishes what is in hand, lets go of every connection."""
        await self._checkpoints.stop()
        await self._absences.stop()
        await self._feeds.aclose()
        await self._bus_door.stop()
        await self._reversing.runner.stop()
        await self._calls.stop()
        await self._servers.close()
        await self._publisher.stop()
        await self._journal.stop()
        await self._locks.close()
        await self._client.close()
        await self._pool.close()

    async def not_ready(self) -> dict[str, str]:
        """What is wrong, by part."""
        wrong = ended(self.background)
        if not self._client.is_connected:
            wrong["bus"] = "not connected"
        try:
            await self._locks.ping()
        except LockUnavailable as error:
            wrong["locks"] = str(error)
        try:
            await self._pool.execute("select 1", timeout=2)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            wrong["database"] = words_of(error)
        return wrong

    async def _announce(self) -> None:
        await self._bus_door.announce()

    def _routes(
        self, settings: Settings, campaigns: Campaigns, runs: Runs, servers: Servers, exporter: Exporter
    ) -> Starlette:
        app = create_app("Takeback recorder", self.not_ready)
        app.add_exception_handler(JournalUnavailable, _on_journal_unavailable)
        app.add_exception_handler(Unwritable, _on_unwritable)
        verifier = settings.verifier()
        parts = self._calls
        app.include_router(calls_api.router(verifier, parts.recording, parts.previews, parts.kept))
        app.include_router(entries_api.router(verifier, parts.entries, parts.doubts, parts.kept))
        app.include_router(approvals_api.router(verifier, parts.approvals, parts.kept))
        app.include_router(runs_api.router(verifier, campaigns, runs, exporter, parts.kept))
        app.include_router(campaigns_api.router(verifier, campaigns, servers, parts.kept))
        app.include_router(self._mcp_door.routes)
        return app


async def build(environ: Mapping[str, str]) -> Recorder:
    """The recorder as *environ* says; raises when the database or the bus cannot be reached, or a key is missing."""
    settings = Settings.of(environ)
    for name in unbound(environ):
        log.warning("a secret is not bound to where it belongs: any server that names it is sent it", secret=name)
    pool = await connect_pool(settings.postgres_url, "recorder", minimum=4, maximum=16)
    try:
        client = await bus.connect(settings.nats_url, "takeback recorder")
    except BaseException:
        await pool.close()
        raise
    return Recorder(settings, environ, pool, client)


async def _on_journal_unavailable(_: Request, error: Exception) -> Response:
    return problem_response(unavailable("journal-unavailable", str(error)))


async def _on_unwritable(_: Request, error: Exception) -> Response:
    return problem_response(invalid(f"This holds what the journal cannot keep: {error}"))


service = Service("recorder", build)
