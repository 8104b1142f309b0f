"""The servers of a stack: a real one where a URL names it, an embedded one where none does, each by itself."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog

from takeback.embedded.nats import EmbeddedNats
from takeback.embedded.postgres import EmbeddedPostgres
from takeback.embedded.server import EmbeddedServer
from takeback.embedded.valkey import EmbeddedValkey
from takeback.tasks import end

POSTGRES = "TAKEBACK_POSTGRES_URL"
NATS = "TAKEBACK_NATS_URL"
REDIS = "TAKEBACK_REDIS_URL"

_WATCH_SECONDS = 0.25
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ServerUrls:
    """Where the servers listen. `nats_subscriber` and `nats_tools` are the restricted users' (a real NATS has its own
    way to say who they are: there all three are the same)."""

    postgres: str
    nats: str
    nats_subscriber: str
    nats_tools: str
    redis: str

    def environ(self) -> dict[str, str]:
        """The settings by which services find them."""
        return {POSTGRES: self.postgres, NATS: self.nats, REDIS: self.redis}


class Servers:
    """PostgreSQL, NATS and Valkey under *folder*, or those that *environ* names.

    An embedded one that ends by itself is started again on its port. When that fails too, `failed` holds the reason.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._postgres = EmbeddedPostgres(folder / "postgres")
        self._nats = EmbeddedNats(folder / "nats")
        self._valkey = EmbeddedValkey(folder / "valkey")
        self.embedded: dict[str, EmbeddedServer] = {
            name: server
            for name, variable, server in (
                ("PostgreSQL", POSTGRES, self._postgres),
                ("NATS", NATS, self._nats),
                ("Valkey", REDIS, self._valkey),
            )
            if not environ.get(variable)
        }
        self.failed: asyncio.Future[Exception] | None = None
        self._stack = AsyncExitStack()

    async def start(self) -> ServerUrls:
        """Start what has to be started, at the same time. Raises ServerNotFound, ServerDidNotStart."""
        for server in self.embedded.values():
            self._stack.push_async_callback(server.stop)
        try:
            async with asyncio.TaskGroup() as starting:
                for server in self.embedded.values():
                    starting.create_task(server.start())
        except ExceptionGroup as several:
            raise several.exceptions[0] from several
        self.failed = asyncio.get_running_loop().create_future()
        watching = asyncio.create_task(self._watch(self.failed))
        self._stack.push_async_callback(end, watching)
        nats = self._environ.get(NATS)
        return ServerUrls(
            postgres=self._environ.get(POSTGRES) or self._postgres.url,
            nats=nats or self._nats.url,
            nats_subscriber=nats or self._nats.subscriber_url,
            nats_tools=nats or self._nats.tools_url,
            redis=self._environ.get(REDIS) or self._valkey.url,
        )

    async def stop(self) -> None:
        """Stop what was started; also after a start that failed half-way."""
        await self._stack.aclose()

    async def _watch(self, failed: asyncio.Future[Exception]) -> None:
        try:
            while True:
                await asyncio.sleep(_WATCH_SECONDS)
                for name, server in self.embedded.items():
                    if not server.running:
                        log.error("server ended by itself, starting it again", server=name)
                        await server.start()
        except Exception as reason:
            failed.set_result(reason)
