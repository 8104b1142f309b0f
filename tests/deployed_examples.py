"""Both examples beside a deployment: their tool servers run here, and what the recorders ask of them can be watched."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import examples.deal.example
from examples.deal.example import acme
from examples.demo.stage import Stage
from examples.table.example import game_table
from takeback.data_folder import DataFolder, Urls
from takeback.example import Installation
from takeback.extension import EXTENSION
from takeback.toolserver import ToolServer
from tests.deployment import Deployment

RECORDERS = ("recorder-1", "recorder-2")
SECRET = "TAKEBACK_SECRET_TOOLS"
Act = Callable[[str], Awaitable[None]]


@dataclass
class Wire:
    """Between the recorders and the company's tool servers, which speak MCP."""

    deployment: Deployment
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Each call that came through: (server, tool, idempotency key)."""
    _acts: dict[tuple[str, str], Act] = field(default_factory=dict)

    def once(self, server: str, tool: str, act: Act) -> None:
        """At the next call of *tool*, its effect done and its answer not sent yet: *act* on the recorder that waits for it."""
        self._acts[server, tool] = act

    def keys(self, server: str, tool: str) -> list[str]:
        """The idempotency keys of the calls of *tool*, in order."""
        return [key for at, name, key in self.asked if (at, name) == (server, tool)]

    def watching(self, server: str, app: ASGIApp) -> ASGIApp:
        """*app*, watched."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["method"] != "POST":
                await app(scope, receive, send)
                return
            body = await _body(receive)
            tool, key = _asked(body)
            if tool:
                self.asked.append((server, tool, key))
            act = self._acts.pop((server, tool), None)
            held: list[Message] = []

            async def hold(message: Message) -> None:
                held.append(message)

            await app(scope, _replayed(body, receive), hold if act else send)
            if act:
                await act(self._waiting(scope["client"][1]))
                for message in held:
                    await send(message)

        return watched

    def _waiting(self, port: int) -> str:
        """Whose connection it is that comes from *port* of this machine."""
        for name in RECORDERS:
            if self.deployment.process(name).running:
                process = psutil.Process(self.deployment.process(name).pid)
                if any(each.laddr.port == port for each in process.net_connections("tcp")):
                    return name
        raise AssertionError(f"no recorder calls from port {port}")


@asynccontextmanager
async def examples_beside(deployment: Deployment, folder: Path) -> AsyncIterator[tuple[Stage, Wire]]:
    """The game table and the company, open in *deployment*; their applications have a database of their own."""
    folder.mkdir()
    said = deployment.compose.services
    applications = await _database(deployment.postgres_url)
    nats = f"127.0.0.1:{deployment.port('nats', 4222)}"
    passwords = said["nats"].environment
    urls = Urls(
        http=deployment.url("edge", 8080),
        nats=f"nats://subscriber:{passwords['NATS_SUBSCRIBER_PASSWORD']}@{nats}",
        nats_tools=f"nats://tools:{passwords['NATS_TOOLS_PASSWORD']}@{nats}",
        postgres=applications,
        redis="",
    )
    keys = {"TAKEBACK_KEYS_DIR": str(deployment.mounted("recorder-1", "/data/keys"))}
    installation = Installation(DataFolder(folder, keys), urls, {SECRET: said["recorder-1"].environment[SECRET]})
    wire, http_app = Wire(deployment), ToolServer.http_app
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(examples.deal.example, "SECRET", SECRET)
        patched.setattr(ToolServer, "http_app", lambda self, **how: wire.watching(self.name, http_app(self, **how)))
        async with game_table(installation), acme(installation), Stage(installation) as stage:
            yield stage, wire


async def _database(owner_url: str) -> str:
    connection = await asyncpg.connect(owner_url)
    await connection.execute("create database applications")
    await connection.close()
    return owner_url.rsplit("/", 1)[0] + "/applications"


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _asked(body: bytes) -> tuple[str, str]:
    """The tool that an MCP message calls and the idempotency key that it brings; empty where it calls none."""
    message: Any = json.loads(body) if body else {}
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return "", ""
    params = message["params"]
    key = params.get("arguments", {}).get("idempotencyKey")
    return params["name"], key or params.get("_meta", {}).get(EXTENSION, {}).get("idempotencyKey", "")
