"""What a client sees through the door is what it sees without it, hidden tools aside: both eras, over HTTP and stdio."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
import pytest_asyncio
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from tests.mcp_lab import ERAS, Era, McpCampaign, McpLab, Transport, mcp_lab, over_http
from tests.node_servers import node_server
from tests.servers import Backend, Databases, Server
from tests.servers_lab.reference import TOOLS, Reference
from tests.waiting import eventually

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
    with pytest.raises(MCPError) as missing:
        await client.read_resource("ref://nowhere")
    with pytest.raises(MCPError):
        await client.get_prompt("greet", {})
    return {
        "offers": await _seen_beside_tools(client),
        "missing": missing.value.error,
        "protocol": client.protocol_version,
        "info": info and _wire(info),
        "instructions": client.instructions,
        "tools": [_wire(tool) for tool in listed.tools],
        "results": results[:-1],
        "climbed": _wire(climbed),
        "told": told,
        "unknown": type(unknown.value),
    }


async def _seen_beside_tools(client: Client) -> dict[str, Any]:
    """Everything that a client can see of the server's resources and prompts, but how long it may be kept."""
    able = client.server_capabilities
    pages = [await client.list_resources()]
    while pages[-1].next_cursor is not None:
        pages.append(await client.list_resources(cursor=pages[-1].next_cursor))
    resources = [_wire(resource) for page in pages for resource in page.resources]
    prompts = (await client.list_prompts()).prompts
    read = [_wire(await client.read_resource(resource["uri"])) for resource in resources[:3]]
    filled = {"who": "ada", "name": "ada", "city": "Wien", "department": "Sales"}
    got = []
    for prompt in prompts:
        if all(argument.name in filled for argument in prompt.arguments or ()):
            wanted = {argument.name: filled[argument.name] for argument in prompt.arguments or ()}
            got.append(_wire(await client.get_prompt(prompt.name, wanted)))
    completed = None
    if able.completions is not None:
        ref = types.PromptReference(name=prompts[0].name)
        completed = (await client.complete(ref, {"name": "who", "value": "a"})).completion
    return {
        "able": (able.resources is not None, able.prompts is not None),
        "resources": resources,
        "templates": [_wire(one) for one in (await client.list_resource_templates()).resource_templates],
        "read": [_without(result, "ttlMs", "cacheScope") for result in read],
        "prompts": [_wire(prompt) for prompt in prompts],
        "got": got,
        "completed": completed and _wire(completed),
    }


def _without(wire: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in wire.items() if name not in names}


def _wire(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_sees_through_the_door_what_it_sees_without_it(
    campaign: McpCampaign, reference: Reference, era: Era, transport: Transport
) -> None:
    """J15: tools, schemas, results, structured content, images, errors, progress, resources, prompts, who the server is."""
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


EVERYTHING: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"message": "Grüße"}),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ("get-resource-links", {"count": 2}),
    ("get-structured-content", {"location": "Chicago"}),
    ("get-sum", {"a": 2, "b": 40.5}),
    ("get-tiny-image", {}),
    ("gzip-file-as-resource", {"name": "x.gz", "data": "data:text/plain,hello", "outputType": "resource"}),
]


async def _seen_of_everything(client: Client) -> dict[str, Any]:
    told: list[Any] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    steps = {"duration": 0.2, "steps": 2}
    climbed = await client.call_tool("trigger-long-running-operation", steps, progress_callback=heard)
    await eventually(lambda: len(told) == 2)
    info = client.server_info
    return {
        "offers": await _seen_beside_tools(client),
        "info": info and _wire(info),
        "instructions": client.instructions,
        "tools": [_wire(tool) for tool in (await client.list_tools()).tools],
        "results": [_wire(await client.call_tool(name, arguments)) for name, arguments in EVERYTHING],
        "climbed": _wire(climbed),
        "told": told,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def everything() -> StdioServerParameters:
    command, arguments = node_server("@modelcontextprotocol/server-everything", "stdio")
    return StdioServerParameters(command=command, args=arguments)


@pytest.mark.parametrize(("era", "transport"), [(ERAS[0], "http"), (ERAS[0], "stdio"), (ERAS[1], "http")])
async def test_the_protocols_reference_server_is_the_same_through_the_door(
    lab: McpLab, everything: StdioServerParameters, era: Era, transport: Transport
) -> None:
    """J15: server-everything, which nobody here wrote; it speaks 2025-11-25 alone, the door both."""
    names = ["trigger-long-running-operation", *(name for name, _ in EVERYTHING)]
    server = {"transport": "mcp", "command": everything.command, "args": everything.args}
    campaign = await lab.campaign({"operations": {f"all/{name}": "allow" for name in names}}, all=server)
    async with Client(everything, mode="legacy", cache=None) as client:
        without = await _seen_of_everything(client)
    async with campaign.connect("all", era, transport) as client:
        through = await _seen_of_everything(client)
    if era == "2026-07-28":  # what only this era says
        offers = through["offers"]
        for result in (*through["results"], through["climbed"], *offers["read"], *offers["got"]):
            assert result["_meta"].pop(types.SERVER_INFO_META_KEY)["name"] == "takeback"
            result["_meta"] = result["_meta"] or None
    assert through == without
