"""A tool server that is registered at an installation: reached as it is registered, and marked there as exercised (P4)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
from nats.aio.client import Client

from recorder.manifest import Checked, read_manifest
from recorder.toolport import NotSent, Operation, ToolPort, open_port
from takeback import bus, json
from takeback.database import connect_pool

_MARK = """
insert into exercised (campaign, server, operation, pin)
select campaign, server, operation, pin from operations
where campaign = $1 and server = $2 and operation = $3 and pin = $4
on conflict do nothing
"""


class NotRegistered(Exception):
    """The campaign has no tool server of this name."""


class Registered:
    """The tool servers of one campaign."""

    def __init__(
        self, pool: asyncpg.Pool, nats: Client, environ: Mapping[str, str], campaign: str, closing: AsyncExitStack
    ) -> None:
        self._pool = pool
        self._nats = nats
        self._environ = environ
        self._campaign = campaign
        self._closing = closing
        self._ports: dict[str, tuple[ToolPort, Checked | None]] = {}

    async def port(self, server: str) -> tuple[ToolPort, Checked | None]:
        """The server's port, and its manifest if it has one. Raises `NotRegistered`."""
        if server not in self._ports:
            row = await self._pool.fetchrow(
                "select transport, manifest from servers where campaign = $1 and name = $2", self._campaign, server
            )
            if row is None:
                raise NotRegistered(
                    f"The campaign {self._campaign} has no tool server {server}. Nothing was exercised."
                )
            manifest = None if row["manifest"] is None else read_manifest(json.loads(row["manifest"]))
            port = await open_port(json.loads(row["transport"]), self._nats, self._environ, manifest, reach=self._reach)
            self._closing.push_async_callback(port.close)
            self._ports[server] = port, manifest
        return self._ports[server]

    async def mark(self, server: str, operations: Sequence[Operation]) -> list[str]:
        """Mark these *operations* exercised; answers those that the server shows otherwise than they are pinned."""
        moved = []
        for operation in operations:
            done = await self._pool.execute(_MARK, self._campaign, server, operation.name, operation.pin)
            pinned = "select pin from operations where campaign = $1 and server = $2 and operation = $3"
            if done.endswith(" 0") and operation.pin != await self._pool.fetchval(
                pinned, self._campaign, server, operation.name
            ):
                moved.append(operation.name)
        return moved

    async def _reach(self, server: str) -> ToolPort:
        try:
            return (await self.port(server))[0]
        except NotRegistered as missing:
            raise NotSent(str(missing)) from missing


@asynccontextmanager
async def registered(environ: Mapping[str, str], campaign: str) -> AsyncIterator[Registered]:
    """The servers of *campaign* at the installation that *environ* names."""
    async with AsyncExitStack() as closing:
        pool = await connect_pool(environ["TAKEBACK_POSTGRES_URL"], "recorder", maximum=2)
        closing.push_async_callback(pool.close)
        nats = await bus.connect(environ["TAKEBACK_NATS_URL"], "conformance")
        closing.push_async_callback(nats.close)
        yield Registered(pool, nats, environ, campaign, closing)
