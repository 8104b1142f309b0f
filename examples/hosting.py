"""Serving an example's applications: each on a free port of this machine, until the context ends."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


@asynccontextmanager
async def serving(*apps: ASGIApp) -> AsyncIterator[list[str]]:
    """Serve each of *apps* on a port of its own on 127.0.0.1; gives their URLs, in order."""
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in apps]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        servers = [
            _Server(
                uvicorn.Config(app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=2)
            )
            for app in apps
        ]
        tasks = [asyncio.create_task(server.serve([at])) for server, at in zip(servers, bound, strict=True)]
        try:
            await _all_started(servers, tasks)
            yield [f"http://127.0.0.1:{at.getsockname()[1]}" for at in bound]
        finally:
            for server in servers:
                server.should_exit = True
            await asyncio.gather(*tasks)


async def _all_started(servers: list[_Server], tasks: list[asyncio.Task[None]]) -> None:
    while not all(server.started for server in servers):
        for task in tasks:
            if task.done():
                task.result()
                raise RuntimeError("An example's application did not start; its log says why.")
        await asyncio.sleep(0.001)


class RequireBearer:
    """Lets only those in who carry *token*."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                await PlainTextResponse("This application does not know you.", 401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers: whoever runs the examples has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
