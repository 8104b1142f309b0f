"""Serving an example's applications: each on a free port of this machine, until the context ends."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Serve *app* on 127.0.0.1; gives its URL."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = _Server(
            uvicorn.Config(app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=2)
        )
        task = asyncio.create_task(server.serve([bound]))
        while not server.started:
            if task.done():
                task.result()
                raise RuntimeError("the application did not start")
            await asyncio.sleep(0.001)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


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
