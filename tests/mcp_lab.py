"""What the tests of the MCP door share: recorders behind a real port, a campaign with a run, and the official client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import httpx2
from mcp import Client as McpClient
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from takeback import bus
from takeback.auth import Kind, issue_token
from takeback.database import service_url
from takeback.door import Door, bind
from takeback.edge import Edge
from takeback.ids import new_id
from takeback.service import Running
from takeback.stack import find_service, start_services
from tests.recorder_lab import Client, lab_environ
from tests.servers import Backend, Databases
from tests.servers_lab.deals import DealServer

Era = Literal["2025-11-25", "2026-07-28"]
Transport = Literal["http", "stdio"]
ERAS: tuple[Era, ...] = ("2025-11-25", "2026-07-28")
_MODE = {"2025-11-25": "legacy", "2026-07-28": "auto"}


@dataclass(slots=True)
class McpLab:
    """Two recorders on the same servers, each behind a port of its own; the first one with a planner beside it."""

    client: Client
    urls: list[str]
    keys: Path
    tools_url: str
    running: list[Running]
    environ: dict[str, str]
    closing: AsyncExitStack

    async def deals(self) -> DealServer:
        """A deal server on a subject of its own."""
        connection = await bus.connect(self.tools_url, "deals")
        self.closing.push_async_callback(connection.close)
        server = DealServer(connection, f"tools.{new_id('deals')}")
        await server.start()
        self.closing.push_async_callback(server.stop)
        return server

    async def campaign(self, policy: dict[str, Any] | None = None, **servers: dict[str, Any]) -> McpCampaign:
        """A campaign of olga (owner) and pete (member) with *servers* registered, and a run that bot opened for pete."""
        members = [{"sub": "pete", "role": "member"}]
        opened = await self.client.ok("POST", "/v1/campaigns", {"name": "mcp", "members": members})
        path = f"/v1/campaigns/{opened['id']}"
        await self.client.ok("PUT", f"{path}/agents/bot", {"memory": "no"})
        for name, server in servers.items():
            await self.client.ok("PUT", f"{path}/servers/{name}", server)
        await self.client.ok("PUT", f"{path}/policy", policy or {})
        wanted = {"agent": "bot", "model": "m1", "principal": "pete"}
        run = await self.client.ok("POST", f"{path}/runs", wanted, sub="bot", kind="agent")
        return McpCampaign(self, opened["id"], run["id"])

    @asynccontextmanager
    async def one_more(self) -> AsyncIterator[tuple[str, Edge]]:
        """Another port to the last recorder, whose edge may be closed."""
        edge = Edge(self.running)
        with contextlib.closing(bind("127.0.0.1", 0)) as bound:
            async with Door(edge, bound) as door:
                yield door.url, edge

    def token(self, sub: str = "bot", kind: Kind = "agent") -> str:
        return issue_token(self.keys / "token.pem", sub, kind)


@dataclass(slots=True)
class McpCampaign:
    """A campaign and its run."""

    lab: McpLab
    id: str
    run: str

    async def owner(self, method: str, path: str, body: Any = None) -> Any:
        return await self.lab.client.ok(method, f"/v1/campaigns/{self.id}/{path}", body)

    async def entries(self) -> list[dict[str, Any]]:
        return list((await self.lab.client.ok("GET", f"/v1/runs/{self.run}/entries"))["items"])

    async def decide(self, decision: str = "approve", *, approval: str | None = None) -> dict[str, Any]:
        """olga decides *approval*, or the only one that waits."""
        if approval is None:
            (waiting,) = (await self.owner("GET", "approvals?status=pending"))["items"]
            approval = waiting["id"]
        wanted = {"decision": decision, "reason": "because"}
        decided: dict[str, Any] = await self.lab.client.ok("POST", f"/v1/approvals/{approval}/decision", wanted)
        return decided

    def url(self, server: str | None = None, replica: int = 0) -> str:
        place = f"/mcp/runs/{self.run}"
        return self.lab.urls[replica] + (place if server is None else f"{place}/{server}")

    def connect(self, server: str | None, era: Era, transport: Transport = "http", **more: Any) -> Any:
        """The official client at the door; *more*: its own arguments, and `replica`, `sub`, `kind`."""
        token = self.lab.token(more.pop("sub", "bot"), more.pop("kind", "agent"))
        replica = more.pop("replica", 0)
        if transport == "http":
            return over_http(self.url(server, replica), era, token, **more)
        arguments = ["-m", "takeback", "mcp", "--run", self.run, "--url", self.lab.urls[replica], "--token-env", "BOT"]
        arguments += [] if server is None else ["--server", server]
        environ = {**os.environ, "BOT": token}
        command = StdioServerParameters(command=sys.executable, args=arguments, env=environ)
        return McpClient(command, mode=_MODE[era], cache=None, **more)


@asynccontextmanager
async def over_http(url: str, era: Era, token: str | None = None, **more: Any) -> AsyncIterator[McpClient]:
    """The official client, over streamable HTTP."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30)) as http,
        McpClient(streamable_http_client(url, http_client=http), mode=_MODE[era], cache=None, **more) as client,
    ):
        yield client


@asynccontextmanager
async def mcp_lab(
    servers: Backend, databases: Databases, redis_url: str, folder: Path, **settings: str
) -> AsyncIterator[McpLab]:
    """Two recorders and a planner in this process on a database and a nats-server of their own, for a whole module."""
    database = await asyncio.to_thread(databases.create)
    nats = servers.nats(folder / "nats")
    await nats.start()
    environ = lab_environ(
        database, nats.url, redis_url, folder,
        **{"TAKEBACK_ALLOW_COMMANDS": "1", "TAKEBACK_FORWARD_DEADLINE_SECONDS": "6", **settings},
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, databases.drop, database)
        stack.push_async_callback(nats.stop)
        connection = await bus.connect(nats.url, "provision")
        await bus.provision_streams(connection.jetstream())
        await connection.close()
        urls = []
        for services in (["recorder", "planner"], ["recorder"]):
            running = await start_services(
                [find_service(name) for name in services],
                lambda name: {**environ, "TAKEBACK_POSTGRES_URL": service_url(database, name)},
                stack,
            )
            bound = stack.enter_context(contextlib.closing(bind("127.0.0.1", 0)))
            urls.append((await stack.enter_async_context(Door(Edge(running), bound))).url)
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=urls[0], timeout=30))
        closing = await stack.enter_async_context(AsyncExitStack())
        yield McpLab(Client(http, folder / "keys"), urls, folder / "keys", nats.tools_url, running, environ, closing)
