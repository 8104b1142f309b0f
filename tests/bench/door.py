"""The MCP door beside the same client straight at the same server, and beside an empty pass-through of the MCP SDK alone."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY

from tests.bench.load import answered
from tests.bench.recorder import Recorder
from tests.processes import TakebackProcess

ROUNDS = 5
CALLERS = 16
_ERA = "2026-07-28"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to the tool server: a caller's address each, and the token that it takes."""

    name: str
    urls: Sequence[str]
    token: str = ""


async def measure(folder: Path, seconds: float) -> None:
    """Prints latencies and rates of all ways, which take turns; *seconds* is the length of one of the rounds."""
    async with AsyncExitStack() as stack:
        tool = await stack.enter_async_context(TakebackProcess("tool", module="tests.bench.mcp_servers"))
        through = await stack.enter_async_context(
            TakebackProcess("through", tool.url, module="tests.bench.mcp_servers")
        )
        door = await _door(folder, tool.url, stack)
        ways = [_Way("straight", [tool.url] * CALLERS), _Way("SDK alone", [through.url] * CALLERS), door]
        for operation in ("read", "write"):
            await _latencies(ways, operation, seconds)
        for operation in ("read", "write"):
            await _rates(ways[1:], operation, seconds)


async def _latencies(ways: Sequence[_Way], operation: str, seconds: float) -> None:
    """The official client, one caller: what each way adds to the median."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_client(way)) for way in ways]
        for client in clients:
            await _timed(client, operation, seconds / 4)
        rounds = [[await _timed(client, operation, seconds / 2) for client in clients] for _ in range(ROUNDS)]
    straight, hop, ours = (statistics.median(times) * 1e3 for times in zip(*rounds, strict=True))
    print(
        f"  {operation:>5} c1  straight {straight:6.2f} ms   SDK alone +{hop - straight:5.2f} ms   "
        f"takeback +{ours - straight:5.2f} ms   takeback over SDK alone {ours - hop:+.2f} ms"
    )


async def _rates(ways: Sequence[_Way], operation: str, seconds: float) -> None:
    """Callers that cost nothing themselves: how many calls a second each way carries."""
    for way in ways:
        await _rate(way, operation, seconds / 2)
    rounds = [[await _rate(way, operation, seconds) for way in ways] for _ in range(ROUNDS)]
    alone, ours = (statistics.median(rates) for rates in zip(*rounds, strict=True))
    share = statistics.median(pair[1] / pair[0] for pair in rounds)
    print(
        f"  {operation:>5} c{CALLERS} SDK alone {alone:6.0f} calls/s   takeback {ours:6.0f} calls/s   share {share:.0%}"
    )


def _client(way: _Way) -> Client:
    headers = {"Authorization": f"Bearer {way.token}"} if way.token else {}
    http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30))
    return Client(streamable_http_client(way.urls[0], http_client=http), cache=None)


async def _timed(client: Client, operation: str, seconds: float) -> float:
    times = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        result = await client.call_tool(operation, {"id": "r0", "n": next(_numbers)})
        assert not result.is_error, result
        times.append(time.perf_counter() - began)
    return statistics.median(times)


async def _rate(way: _Way, operation: str, seconds: float) -> float:
    until = time.perf_counter() + seconds
    began = time.perf_counter()
    counts = await asyncio.gather(*(_caller(url, way.token, n, operation, until) for n, url in enumerate(way.urls)))
    return sum(counts) / (time.perf_counter() - began)


async def _caller(url: str, token: str, number: int, operation: str, until: float) -> int:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {_ERA}\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: {operation}\r\nAuthorization: Bearer {token}\r\n"
    )
    meta = {PROTOCOL_VERSION_META_KEY: _ERA, CLIENT_CAPABILITIES_META_KEY: {}}
    count = 0
    try:
        while time.perf_counter() < until:
            arguments = {"id": f"r{number}", "n": next(_numbers)}
            params = {"name": operation, "arguments": arguments, "_meta": meta}
            body = json.dumps({"jsonrpc": "2.0", "id": count, "method": "tools/call", "params": params}).encode()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            result = json.loads(await answered(reader))["result"]
            if result.get("isError"):
                raise RuntimeError(str(result))
            count += 1
    finally:
        writer.close()
    return count


async def _door(folder: Path, tool: str, stack: AsyncExitStack) -> _Way:
    """A recorder, with a run for each caller."""
    recorder = await Recorder.started(folder, stack, TAKEBACK_HTTP_ALLOW_PRIVATE="1")
    runs = await recorder.runs(CALLERS, {"transport": "mcp", "url": tool})
    return _Way("takeback", [f"{recorder.url}/mcp/runs/{run}/bench" for run in runs], recorder.token)
