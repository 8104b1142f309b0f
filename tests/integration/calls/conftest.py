"""A recorder without its colleagues for each file here, a tool server on the bus, and a campaign for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.calls_lab import Campaign, Lab, shared_lab
from tests.servers import Backend, Databases, Server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(
    servers: Backend, migrated_databases: Databases, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Lab]:
    async with shared_lab(servers, migrated_databases, valkey_server.url, tmp_path_factory.mktemp("calls")) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(lab: Lab) -> Campaign:
    return await lab.campaign(await lab.deals())
