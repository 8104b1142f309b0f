"""The doors that speak MCP: streamable HTTP and stdio, protocol revisions 2025-11-25 and 2026-07-28."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from takeback import json
from takeback.extension import EXTENSION
from takeback.toolserver.calling import InDoubt, refusal
from takeback.toolserver.dispatch import Served
from takeback.toolserver.errors import OperationError, UnknownTool


def http_app(served: Served, secret: str | None, path: str) -> Starlette:
    """The Starlette application that serves MCP at *path*; see `ToolServer.http_app`."""
    # A page in a browser on this host could reach a server without a secret by a rebound name; with one it cannot.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False) if secret is not None else None
    app = _server(served).streamable_http_app(
        streamable_http_path=path, json_response=True, transport_security=security
    )
    sessions = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(started: Any) -> AsyncIterator[Any]:
        await served.prepare()
        async with sessions(started) as state:
            yield state

    app.router.lifespan_context = lifespan
    if secret is not None:
        app.user_middleware.append(Middleware(_OnlyTheRecorder, secret=secret))
    return app


async def serve_stdio(served: Served) -> None:
    """Serve the parent process over stdin and stdout until stdin ends."""
    await served.prepare()
    server = _server(served)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class _OnlyTheRecorder:
    """Refuses every HTTP request without the secret."""

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self._app = app
        self._expected = f"Bearer {secret}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self._expected):
                refused = PlainTextResponse(
                    "This tool server answers only its recorder. Nothing was changed.\n",
                    status_code=401,
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _server(served: Served) -> Server[Any]:
    special = {
        served.capability["undoTool"]: served.undo,
        served.capability["observeTool"]: served.observe,
        served.capability["previewTool"]: served.preview,
    }

    tools = types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in served.tools()])

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return tools

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if params.name in special:
                answer = _structured(await special[params.name](params.arguments))
            else:
                answer = await served.call(params.name, params.arguments, ctx.meta)
        except OperationError as error:
            answer = refusal(str(error))
        except UnknownTool as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        except InDoubt as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error
        return types.CallToolResult.model_validate(answer)

    server: Server[Any] = Server(
        served.name,
        version=served.version,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # No argument is repeated in a header; without this each call would list all tools to find that out.
        get_tool_input_schema=lambda _name: None,
    )
    server.extensions[EXTENSION] = served.capability
    return server


def _structured(answer: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(answer).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": answer, "isError": False}
