"""One door for several services: each request goes to the first service that has a route for its path.

In containers an edge proxy does this by pattern (deploy/Caddyfile); in one process this does. It answers for all of
them on `/healthz`, `/readyz` and `/metrics`, and 404 for what nobody serves.
"""

import asyncio
import re
from collections.abc import Sequence
from functools import lru_cache

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from takeback.errors import not_found
from takeback.service import Running
from takeback.web import answer, problem_response

_ID = re.compile(r"(?<=/)[a-z]{3}_[^/]+")
_OWN = ("/healthz", "/readyz", "/metrics")


class Edge:
    """The ASGI application in front of *services*. `close` ends the live streams, so that a shutdown need not wait."""

    def __init__(self, services: Sequence[Running]) -> None:
        self._services = services
        self._closing = asyncio.Event()
        self._serving = lru_cache(maxsize=4096)(self._find)
        self._only = services[0].app if len(services) == 1 else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand over."""
        if scope["path"] in _OWN and scope["type"] == "http":
            await (await self._own(scope["path"]))(scope, receive, send)
            return
        # Ids never decide where a path leads: without them few shapes are left to remember.
        app = self._only or self._serving(scope["type"], scope.get("method", ""), _ID.sub("x", scope["path"]))
        if app is None:
            await problem_response(not_found())(scope, receive, send)
        elif _is_live_stream(scope):
            await app(scope, self._until_closed(receive), send)
        else:
            await app(scope, receive, send)

    def close(self) -> None:
        """Tell every live stream that its client has gone."""
        self._closing.set()

    async def not_ready(self) -> dict[str, str]:
        """What is wrong in any service, as `service.part`."""
        wrong: dict[str, str] = {}
        for service in self._services:
            wrong |= {f"{service.name}.{part}": why for part, why in (await service.not_ready()).items()}
        return wrong

    async def _own(self, path: str) -> Response:
        if path == "/metrics":
            return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
        if path == "/healthz":
            return answer({"status": "ok"})
        wrong = await self.not_ready()
        return answer({"status": "not ready", "wrong": wrong} if wrong else {"status": "ready"}, 503 if wrong else 200)

    def _find(self, kind: str, method: str, path: str) -> ASGIApp | None:
        scope = {"type": kind, "method": method, "path": path, "root_path": "", "headers": []}
        partial: ASGIApp | None = None  # right path, wrong method: that service says 405
        for service in self._services:
            for route in service.app.routes:
                match route.matches(scope)[0]:
                    case Match.FULL:
                        return service.app
                    case Match.PARTIAL:
                        partial = partial or service.app
                    case Match.NONE:
                        pass
        return partial

    def _until_closed(self, receive: Receive) -> Receive:
        async def receive_or_close() -> Message:
            receiving, closing = asyncio.ensure_future(receive()), asyncio.ensure_future(self._closing.wait())
            try:
                await asyncio.wait((receiving, closing), return_when=asyncio.FIRST_COMPLETED)
                return receiving.result() if receiving.done() else {"type": "http.disconnect"}
            finally:
                receiving.cancel()
                closing.cancel()

        return receive_or_close


def _is_live_stream(scope: Scope) -> bool:
    if scope.get("method") == "POST":  # how an MCP client of 2026-07-28 opens one
        return (b"mcp-method", b"subscriptions/listen") in scope["headers"]
    return scope.get("method") == "GET" and any(
        name == b"accept" and b"text/event-stream" in value for name, value in scope["headers"]
    )
