"""Two recorders behind their MCP doors for all tests here, a server on the bus and one of MCP, and a campaign for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
import pytest_asyncio

from takeback.extension import EXTENSION
from tests.mcp_lab import McpCampaign, McpLab, mcp_lab
from tests.servers import Backend, Databases, Server
from tests.servers_lab.deals import DealServer
from tests.servers_lab.reference import TOOLS, Reference

ALLOWED = {"operations": {f"ref/{tool['name']}": "allow" for tool in TOOLS}}
SENT = {"to": "world"}


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def lab(
    servers: Backend, migrated_databases: Databases, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[McpLab]:
    async with mcp_lab(servers, migrated_databases, valkey_server.url, tmp_path_factory.mktemp("mcp")) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="package")
async def deals(lab: McpLab) -> DealServer:
    return await lab.deals()


@pytest_asyncio.fixture(loop_scope="package")
async def campaign(lab: McpLab, deals: DealServer) -> McpCampaign:
    return await lab.campaign(deals={"transport": "nats", "subject": deals.subject})


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def served() -> AsyncIterator[Reference]:
    async with Reference().serving() as reference:
        yield reference


@pytest_asyncio.fixture(loop_scope="package")
async def reference(served: Reference) -> AsyncIterator[Reference]:
    yield served
    served.release.set()  # nobody waits on in it
    served.forget()


@pytest_asyncio.fixture(loop_scope="package")
async def undeclared(lab: McpLab, reference: Reference) -> McpCampaign:
    return await lab.campaign(ALLOWED, ref={"transport": "mcp", "url": reference.url})


def text(result: types.CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, types.TextContent)
    return part.text


def told(result: types.CallToolResult) -> dict[str, Any]:
    """What an error of ours says for programs."""
    assert result.is_error
    return dict((result.meta or {})[EXTENSION])
