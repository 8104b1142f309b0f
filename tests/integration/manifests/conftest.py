"""A pantry, which is an ordinary MCP server, behind its manifest: for each file here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from takeback.messages.campaign import McpHttp
from tests.integration.manifest_lab import ManifestLab, manifest_lab
from tests.servers import Backend, Server
from tests.servers_lab.pantry import MANIFEST, Pantry, pantry_server
from tests.serving import served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    shared_database: str, servers: Backend, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ManifestLab, Pantry, str]]:
    pantry = Pantry()
    async with served(pantry_server(pantry).streamable_http_app(json_response=True)) as url:
        server = McpHttp(transport="mcp", url=f"{url}/mcp", manifest=MANIFEST)
        folder = tmp_path_factory.mktemp("manifests")
        async with manifest_lab(shared_database, servers, valkey_server, folder, server) as lab:
            yield lab, pantry, f"{url}/mcp"
            pantry.go_on.set()


@pytest_asyncio.fixture(loop_scope="module")
async def lab(running: tuple[ManifestLab, Pantry, str]) -> ManifestLab:
    await running[0].new_run()
    return running[0]


@pytest.fixture
def pantry(running: tuple[ManifestLab, Pantry, str]) -> Pantry:
    """The server as new."""
    pantry = running[1]
    fresh = Pantry(
        notes={"/a": "alpha", "/b": "beta"},
        tasks={f"t{n}": {"id": f"t{n}", "title": f"task {n}", "done": False} for n in range(91, 96)},
        stock={"flour": 10},
        links=[("t95", "t92"), ("t93", "t95")],
        numbers=pantry.numbers,
        go_on=pantry.go_on,
    )
    vars(pantry).update(vars(fresh))
    return pantry
