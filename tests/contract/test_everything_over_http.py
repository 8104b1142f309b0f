"""The protocol's reference server over HTTP, which forgets its sessions when it is started anew, and says so in its own way."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from recorder.toolport import NotSent, ToolPort
from takeback.extension import RequestMeta
from tests.contract.odd_server import mcp_port
from tests.node_servers import node_server
from tests.ports import own_port
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio
SECONDS = 10.0
READ = {"uri": "demo://resource/dynamic/text/1"}


@asynccontextmanager
async def _serving(at: int) -> AsyncIterator[str]:
    command, arguments = node_server("@modelcontextprotocol/server-everything", "streamableHttp")
    environ = {**os.environ, "PORT": str(at)}
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(command, *arguments, env=environ, stdout=quiet, stderr=quiet)
    url = f"http://127.0.0.1:{at}/mcp"

    async def answers() -> bool:
        async with httpx.AsyncClient() as http:
            try:
                return (await http.get(url)).status_code == 400
            except httpx.TransportError:
                return False

    try:
        await eventually(answers)
        yield url
    finally:
        process.kill()
        await process.wait()


async def _read_and_called(port: ToolPort) -> tuple[bool, bool]:
    meta = RequestMeta(entry="ent_1", idempotency_key="ent_1", fence=1, serial_key="cmp_1")
    read = await port.call("resources/read", READ, meta, deadline=SECONDS)
    called = await port.call("echo", {"message": "hello"}, meta, deadline=SECONDS)
    return bool(read.result["contents"]), called.is_error


async def test_it_is_reached_anew_when_it_was_started_anew() -> None:
    """J15: the session is gone, which it tells with a 400 and in words; nothing ran, and the same call is made in a new one."""
    at = own_port()
    async with _serving(at) as url:
        port = await mcp_port(url, headers={})
        await port.describe(deadline=SECONDS)
        assert await _read_and_called(port) == (True, False)
    with pytest.raises(NotSent):
        await _read_and_called(port)
    async with _serving(at):
        assert await _read_and_called(port) == (True, False)
        await port.close()
