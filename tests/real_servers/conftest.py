"""One recorder with a planner for all real servers, and a campaign for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.mcp_lab import McpLab, mcp_lab
from tests.real_servers.bench import Bench
from tests.real_servers.servers import SERVERS, manifest
from tests.servers import Backend, Databases, Server

Opened = Callable[[str, Path], Awaitable[Bench]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def lab(
    servers: Backend, migrated_databases: Databases, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[McpLab]:
    folder = tmp_path_factory.mktemp("real")
    async with mcp_lab(servers, migrated_databases, valkey_server.url, folder) as lab:
        yield lab


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def opened(lab: McpLab) -> AsyncIterator[Opened]:
    """Starts a real server on a folder, and registers it with its shipped manifest in a campaign of its own."""
    async with AsyncExitStack() as stack:

        async def start(name: str, folder: Path) -> Bench:
            config = await stack.enter_async_context(SERVERS[name](folder))
            campaign = await lab.campaign(**{name: {**config, "manifest": manifest(name)}})
            return Bench(campaign, name, config)

        yield start
