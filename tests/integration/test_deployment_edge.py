"""The deployed edge (deploy/Caddyfile, in Caddy itself): who answers which path, and that nothing is sent twice."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from notifier.console.console import Console
from takeback.embedded.process import ServerProcess, listens
from takeback.ids import new_id
from takeback.messages.doors import DOORS, Door
from tests.compose import ROOT
from tests.deployment import BIN
from tests.ports import own_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = Console(None, None, None, None).routes()  # type: ignore[arg-type]  # only listed


class Upstream:
    """Stands where a service would: says its name, or takes a request and hangs up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[str] = []
        self.hangs_up = False
        self.port = own_port()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line = head.split(b"\r\n", 1)[0].decode()
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                self.heard.append(line.removesuffix(" HTTP/1.1"))
                if self.hangs_up:
                    break
                if "/stream" in line:
                    await self._stream(writer)
                    break
                body = self.name.encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        writer.write(f"data: {self.name}\n\n".encode())
        await writer.drain()
        await asyncio.Event().wait()


class Edge:
    """Caddy in front of one planner, one notifier and two recorders."""

    def __init__(self, http: httpx.AsyncClient, upstreams: dict[str, Upstream]) -> None:
        self.http = http
        self.upstreams = upstreams
        self.recorders = [upstreams["recorder-1"], upstreams["recorder-2"]]

    def forget(self) -> None:
        for upstream in self.upstreams.values():
            upstream.heard.clear()
            upstream.hangs_up = False


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Edge]:
    async with AsyncExitStack() as stack:
        upstreams = {name: Upstream(name) for name in ("recorder-1", "recorder-2", "planner", "notifier")}
        for upstream in upstreams.values():
            await upstream.start()
            stack.push_async_callback(upstream.stop)
        url = await stack.enter_async_context(_caddy(tmp_path_factory.mktemp("caddy"), upstreams))
        yield Edge(await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=10)), upstreams)


@pytest.fixture
def edge(started: Edge) -> Edge:
    started.forget()
    return started


@asynccontextmanager
async def _caddy(folder: Path, upstreams: dict[str, Upstream]) -> AsyncIterator[str]:
    port = own_port()
    at = {name: f"127.0.0.1:{upstream.port}" for name, upstream in upstreams.items()}
    environ = {
        "HOME": str(folder),
        "TAKEBACK_EDGE_PORT": str(port),
        "TAKEBACK_RECORDERS": f"{at['recorder-1']} {at['recorder-2']}",
        "TAKEBACK_PLANNERS": at["planner"],
        "TAKEBACK_NOTIFIERS": at["notifier"],
    }
    command = [BIN / "caddy", "run", "--config", ROOT / "deploy/Caddyfile", "--adapter", "caddyfile"]
    process = ServerProcess(command, log=folder / "caddy.log", identity={"env": environ})
    process.spawn()
    request = b"GET /healthz HTTP/1.1\r\nHost: edge\r\n\r\n"
    await process.wait_until(lambda: listens(port, say=request, greeting=b"HTTP/1.1 200"))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await process.stop()


@pytest.mark.parametrize("door", DOORS, ids=lambda door: f"{door.method} {door.path}")
async def test_each_door_of_the_contract_leads_to_the_service_that_serves_it(edge: Edge, door: Door) -> None:
    """Issue 2, deployment: the edge splits the paths by pattern, not by prefix alone."""
    path = re.sub(r"\{\w+\}", lambda _: new_id("any"), door.path)
    if door.path.endswith("/stream"):
        async with edge.http.stream(door.method, path) as answer:
            said = await anext(answer.aiter_lines())
        assert said == f"data: {door.service}"
        return
    said = (await edge.http.request(door.method, path)).text
    assert said.removesuffix("-1").removesuffix("-2") == door.service


@pytest.mark.parametrize("path", sorted({getattr(route, "path", "") for route in PAGES}))
async def test_each_page_of_the_console_comes_from_the_notifier(edge: Edge, path: str) -> None:
    """U2: pages ask the API for what they show; the edge leads the browser to them."""
    path = re.sub(r"\{\w+\}", lambda _: new_id("any"), path)
    assert (await edge.http.get(f"{path}/any.css" if path == "/static" else path)).text == "notifier"


async def test_what_belongs_to_nobody_else_is_the_recorders_and_what_is_inside_stays_inside(edge: Edge) -> None:
    for path in ("/v1/nothing", "/mcp/runs/run_1", "/v1/runs/run_1/graphs", "/v1/plansx/1", "/v1/campaigns/c/plans/x"):
        assert (await edge.http.get(path)).text.startswith("recorder"), path
    for path in ("/metrics", "/readyz"):
        assert (await edge.http.get(path)).status_code == 404
    assert (await edge.http.get("/healthz")).json() == {"status": "ok"}


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k1"}], ids=["plain", "with a key"])
@pytest.mark.parametrize("body", [None, b"{}"], ids=["no body", "body"])
async def test_a_post_that_was_sent_is_never_sent_again(
    edge: Edge, headers: dict[str, str], body: bytes | None
) -> None:
    """Design, Services: not by Caddy, and not by its HTTP client on a kept connection, which calls a key idempotent."""
    for n in range(4):  # connections are kept, so that they can be used again
        await edge.http.post(f"/v1/runs/run_{n}/close", headers=headers)
    for recorder in edge.recorders:
        recorder.heard.clear()
        recorder.hangs_up = True
    answer = await edge.http.post("/v1/runs/run_1/calls", headers=headers, content=body)
    assert [line for recorder in edge.recorders for line in recorder.heard] == ["POST /v1/runs/run_1/calls"]
    assert answer.status_code == 502
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == 502
    assert "may have been done" in problem["detail"]
    for service, path in (("planner", "/v1/plans/pln_1/decision"), ("notifier", "/v1/tickets")):
        edge.upstreams[service].hangs_up = True
        await edge.http.post(path, headers=headers, content=body)
        assert edge.upstreams[service].heard == [f"POST {path}"]


async def test_a_recorder_that_is_gone_costs_nobody_an_answer(edge: Edge) -> None:
    """J17: what it was not sent goes to the other one, a POST too; what broke under way is read again if it only reads."""
    gone, other = edge.recorders
    await gone.stop()
    for n in range(4):
        answer = await edge.http.post(f"/v1/runs/run_{n}/calls", json={})
        assert (answer.status_code, answer.text) == (200, other.name)
    assert len(other.heard) == 4
    await gone.start()
    other.hangs_up = True
    assert (await edge.http.get("/v1/runs/run_1")).text == gone.name
