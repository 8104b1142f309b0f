"""A tool server of the SDK on a real PostgreSQL, spoken to as a recorder would, for each file here."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest_asyncio

from takeback.extension import EXTENSION
from takeback.toolserver import ToolServer
from tests.crm_server import EMPTY, ROWS, SCHEMA, build

Json = dict[str, Any]
DEAL = "crm://acme/deal/D-881"


class Crm:
    """The server with a caller's conveniences."""

    def __init__(self, server: ToolServer, pool: asyncpg.Pool) -> None:
        self.server = server
        self.pool = pool
        self._undos = 0

    async def call(self, name: str, key: str | None = None, fence: int | None = None, **arguments: Any) -> Json:
        meta = {EXTENSION: {"entry": key, "idempotencyKey": key, "fence": fence}}
        return await self.server.call(name, arguments, meta)

    async def done(self, name: str, key: str | None = None, **arguments: Any) -> Json:
        """The declaration in the result of a call that succeeded."""
        answer = await self.call(name, key, **arguments)
        assert answer["isError"] is False, answer
        part: Json = answer["_meta"][EXTENSION]
        return part

    async def undo(self, declared: Json, key: str | None = None, **more: Any) -> Json:
        self._undos += 1
        request = {
            "compensationToken": declared["undo"]["compensationToken"],
            "ifVersion": declared["undo"].get("ifVersion"),
            "force": False,
            "idempotencyKey": key or f"undo-{self._undos}",
        }
        return await self.server.undo(request | more)

    async def row(self, sql: str, *values: Any) -> Any:
        return await self.pool.fetchrow(sql, *values)

    async def value(self, sql: str, *values: Any) -> Any:
        return await self.pool.fetchval(sql, *values)

    async def stage(self) -> Any:
        return await self.value("select stage from deals where id = 'D-881'")

    async def blocked(self, count: int = 1) -> None:
        """Until that many connections wait for a lock."""
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        async with asyncio.timeout(10):
            while await self.value(waiting) < count:
                await asyncio.sleep(0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(empty_shared_database: str) -> AsyncIterator[Crm]:
    async with asyncpg.create_pool(empty_shared_database, min_size=1, max_size=12) as pool:
        await pool.execute(SCHEMA)
        server = build(pool)
        await server.prepare()
        yield Crm(server, pool)


@pytest_asyncio.fixture(loop_scope="module")
async def crm(shared: Crm) -> Crm:
    """The server, its database as new."""
    await shared.pool.execute(EMPTY + ROWS)
    return shared
