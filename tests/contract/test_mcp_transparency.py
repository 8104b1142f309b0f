"""What a client sees through the door is what it sees without it, hidden tools aside: both eras, over HTTP and stdio."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from tests.integration.calls_lab import eventually
from tests.mcp_lab import ERAS, Era, McpCampaign, McpLab, Transport, mcp_lab, over_http
from tests.servers import Backend, Databases, Server
from tests.servers_lab.reference import TOOLS, Reference

pytestmark = pytest.mark.asyncio(loop_scope="module")
ALLOWED = {"operations": {f"ref/{tool['name']}": "allow" for tool in TOOLS}}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"text": 'Grüße\n\u2028 "x"'}),
    ("sum", {"a": 1.5, "b": 2}),
    ("picture", {}),
    ("wrong", {"text": "x"}),
    ("count", {}),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(
    servers: Backend, migrated_databases: Databases, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[McpLab]:
    async with mcp_lab(servers, migrated_databases, valkey_server.url, tmp_path_factory.mktemp("mcp")) as lab:
        yield lab


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reference() -> AsyncIterator[Reference]:
    async with Reference().serving() as reference:
        yield reference


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def campaign(lab: McpLab, reference: Reference) -> McpCampaign:
    return await lab.campaign(ALLOWED, ref={"transport": "mcp", "url": reference.url})


async def _seen(client: Client) -> dict[str, Any]:
    """Everything that a client can see of the server's tools, as JSON."""
    told: list[Any] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    listed = await client.list_tools()
    results = []
    for name, arguments in CALLS:
        results.append(_wire(await client.call_tool(name, arguments)))
    climbed = await client.call_tool("climb", {"steps": 3}, progress_callback=heard)
    await eventually(lambda: len(told) == 3)
    with pytest.raises(MCPError) as unknown:
        await client.call_tool("nothing", {})
    info = client.server_info
    return {
        "protocol": client.protocol_version,
        "info": info and _wire(info),
        "instructions": client.instructions,
        "tools": [_wire(tool) for tool in listed.tools],
        "results": results[:-1],
        "climbed": _wire(climbed),
        "told": told,
        "unknown": type(unknown.value),
    }


def _wire(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_sees_through_the_door_what_it_sees_without_it(
    campaign: McpCampaign, reference: Reference, era: Era, transport: Transport
) -> None:
    """J15: tools, schemas, results, structured content, images, errors, progress, who the server is, its instructions."""
    if transport == "http":
        bare: Any = over_http(reference.url, era)
    else:
        command = StdioServerParameters(command=sys.executable, args=["-m", "tests.servers_lab.reference"])
        bare = Client(command, mode="legacy" if era == "2025-11-25" else "auto", cache=None)
    async with bare as client:
        without = await _seen(client)
    async with campaign.connect("ref", era, transport) as client:
        through = await _seen(client)
    assert through == without
    assert without["protocol"] == era
    if era == "2026-07-28":
        assert without["results"][0]["_meta"]["example.com/kept"] == [1, 2.5, None, "ü"]
