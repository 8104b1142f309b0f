"""An MCP server that answers whatever it was made with, and the port to it."""

import json
from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from recorder.toolport import ToolPort, open_port
from tests.contract.test_toolport import ENVIRON

HEADERS = {"Authorization": "Bearer env:TAKEBACK_SECRET_CRM"}


async def mcp_port(url: str, headers: dict[str, str] | None = None, environ: dict[str, str] | None = None) -> ToolPort:
    config = {"transport": "mcp", "url": url, "headers": HEADERS if headers is None else headers}
    return await open_port(config, None, ENVIRON if environ is None else environ)  # type: ignore[arg-type]


Answered = Response | dict[str, Any] | Callable[[int], Response]
"""A whole answer, a result, or what makes an answer to the request of an id."""


class Odd:
    """An MCP server of either revision that answers a tool call with what it was made with."""

    def __init__(self, answer: Answered, revision: str = "2025-11-25") -> None:
        self._answer = answer
        self._revision = revision

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        request = json.loads(message.get("body") or b"{}")
        await self._respond(request)(scope, receive, send)

    def _respond(self, request: dict[str, Any]) -> Response:
        match request.get("method"):
            case "server/discover" if self._revision == "2026-07-28":
                hints = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
                return self._result(request, {"supportedVersions": [self._revision], "capabilities": {}, **hints})
            case "initialize":
                info = {"serverInfo": {"name": "odd", "version": "0"}, "capabilities": {}}
                return self._result(request, info | {"protocolVersion": self._revision})
            case "tools/call":
                if isinstance(self._answer, dict):
                    return self._result(request, self._answer)
                return self._answer if isinstance(self._answer, Response) else self._answer(request["id"])
            case "tools/list":
                return self._result(request, {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "new": 1}]})
            case str(method) if method.startswith("notifications/"):
                return Response(status_code=202)
        return Response(status_code=405)

    def _result(self, request: dict[str, Any], result: dict[str, Any]) -> Response:
        answer = result if "error" in result else {"result": result}
        return JSONResponse({"jsonrpc": "2.0", "id": request["id"], **answer})
