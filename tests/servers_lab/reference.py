"""A tool server made with the MCP SDK alone, which has never heard of undo: every kind of thing that a result can hold.

Run as a program it serves stdin and stdout.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ServerEvent, ToolsListChanged
from mcp.shared.subscriptions import ResourcesListChanged

from tests.serving import served

PIXEL = base64.b64encode(bytes.fromhex("89504e470d0a1a0a")).decode()


def _schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


TOOLS = [
    {"name": "echo", "title": "Echo", "description": "Says it back", "inputSchema": _schema(text={"type": "string"})},
    {
        "name": "sum",
        "description": "Adds",
        "inputSchema": _schema(a={"type": "number"}, b={"type": "number"}),
        "outputSchema": _schema(sum={"type": "number"}),
        "annotations": {"title": "Sum", "readOnlyHint": True, "idempotentHint": True},
        "_meta": {"example.com/colour": "blue"},
    },
    {"name": "picture", "description": "An image, a sound, a link and a file", "inputSchema": _schema()},
    {"name": "wrong", "description": "Answers an error", "inputSchema": _schema(text={"type": "string"})},
    {"name": "climb", "description": "Tells how far it is", "inputSchema": _schema(steps={"type": "integer"})},
    {"name": "wait", "description": "Works until it is cancelled or released", "inputSchema": _schema()},
    {"name": "count", "description": "Counts the calls of its session", "inputSchema": _schema()},
]

RESOURCES: list[dict[str, Any]] = [
    {"uri": "ref://notes/today", "name": "today", "title": "Today", "mimeType": "text/plain", "size": 5},
    {"uri": "ref://pictures/dot", "name": "dot", "mimeType": "image/png", "_meta": {"example.com/colour": "red"}},
]
TEMPLATES = [{"uriTemplate": "ref://notes/{day}", "name": "day", "description": "A day's note"}]
PROMPTS = [
    {
        "name": "greet",
        "description": "Greets somebody",
        "arguments": [{"name": "who", "description": "Whom", "required": True}],
    }
]


class Bus(InMemorySubscriptionBus):
    """Says when somebody has begun to listen."""

    def __init__(self) -> None:
        super().__init__()
        self.listened = asyncio.Event()

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        unsubscribe = super().subscribe(listener)
        self.listened.set()
        return unsubscribe


@dataclass
class Reference:
    """The server. *seen* are the headers of its requests; `waiting`, `cancelled` and `release` are those of ``wait``."""

    seen: list[dict[str, str]] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    sessions: list[Any] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self.bus = Bus()
        self.forget()
        self.tools = [dict(tool) for tool in TOOLS]
        self.server: Server[Any] = Server(
            "reference",
            version="3.2.1",
            title="Reference",
            instructions="Add with sum.",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._prompt,
            on_completion=self._complete,
            on_subscriptions_listen=ListenHandler(self.bus),
            get_tool_input_schema=lambda _: None,
        )

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[Reference]:
        """Serves HTTP on *port* (0: a free one) while the context is open."""
        app = self.server.streamable_http_app()

        async def noting(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                self.seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
            await app(scope, receive, send)

        async with served(noting, port) as url:
            self.url = f"{url}/mcp"
            yield self

    def forget(self) -> None:
        """As new, for whoever looks next; who waits in a call waits on."""
        self.seen.clear()
        self.calls.clear()
        self.read.clear()
        self.bus.listened = asyncio.Event()
        self.waiting, self.cancelled, self.release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def change_list(self) -> None:
        """Tells every client that the list of tools has changed."""
        await self.bus.publish(ToolsListChanged())
        for session in self.sessions:
            await session.send_tool_list_changed()

    async def change_resources(self) -> None:
        """Tells every client that the list of resources has changed."""
        await self.bus.publish(ResourcesListChanged())
        for session in self.sessions:
            await session.send_resource_list_changed()

    async def _list(self, _ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in self.tools])

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        self.calls.append((params.name, arguments))
        return types.CallToolResult.model_validate(await getattr(self, f"_{params.name}")(ctx, **arguments))

    async def _list_resources(self, _ctx: Any, params: Any) -> types.ListResourcesResult:
        """A page for each."""
        place = int(getattr(params, "cursor", None) or 0)
        following = str(place + 1) if place + 1 < len(RESOURCES) else None
        return types.ListResourcesResult(
            resources=[types.Resource.model_validate(RESOURCES[place])], next_cursor=following
        )

    async def _list_templates(self, _ctx: Any, _params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": TEMPLATES})

    async def _read(self, _ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        self.read.append(uri)
        if uri == "ref://pictures/dot":
            content: dict[str, Any] = {"uri": uri, "mimeType": "image/png", "blob": PIXEL}
        elif uri.startswith(("ref://notes/", "crm://")):
            content = {
                "uri": uri,
                "mimeType": "text/plain",
                "text": f"Grüße\n\u2028 {uri}",
                "_meta": {"example.com/x": 1},
            }
        else:
            raise MCPError(-32002, "Resource not found", {"uri": uri})
        return types.ReadResourceResult.model_validate({"contents": [content]})

    async def _list_prompts(self, _ctx: Any, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult.model_validate({"prompts": PROMPTS})

    async def _prompt(self, _ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        who = (params.arguments or {})["who"]
        said = {"role": "user", "content": _text(f"Say hello to {who}")}
        return types.GetPromptResult.model_validate({"description": "Greets", "messages": [said]})

    async def _complete(self, _ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = [name for name in ("ada", "alan", "grace") if name.startswith(params.argument.value)]
        return types.CompleteResult.model_validate({"completion": {"values": values, "total": len(values)}})

    async def _echo(self, _ctx: Any, text: str) -> dict[str, Any]:
        return {"content": [_text(text)], "_meta": {"example.com/kept": [1, 2.5, None, "ü"]}}

    async def _sum(self, _ctx: Any, a: float, b: float) -> dict[str, Any]:
        return {"content": [_text(f"{a + b}")], "structuredContent": {"sum": a + b, "extra": {"x": None}}}

    async def _picture(self, _ctx: Any) -> dict[str, Any]:
        annotated = {"annotations": {"audience": ["user"], "priority": 0.5}}
        return {
            "content": [
                {"type": "image", "data": PIXEL, "mimeType": "image/png", **annotated},
                {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"},
                {"type": "resource_link", "uri": "file:///a.txt", "name": "a", "size": 3},
                {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "text/plain", "text": "b"}},
            ]
        }

    async def _wrong(self, _ctx: Any, text: str) -> dict[str, Any]:
        return {"content": [_text(f"no: {text}"), _text("really")], "isError": True, "structuredContent": {"code": 7}}

    async def _climb(self, ctx: Any, steps: int) -> dict[str, Any]:
        for step in range(1, steps + 1):
            await ctx.session.report_progress(step, steps, f"step {step}")
        return {"content": [_text("up")]}

    async def _wait(self, _ctx: Any) -> dict[str, Any]:
        self.waiting.set()
        try:
            await self.release.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return {"content": [_text("waited")]}

    async def _count(self, ctx: Any) -> dict[str, Any]:
        if ctx.session.client_params is not None and ctx.session not in self.sessions:
            self.sessions.append(ctx.session)
        key = id(getattr(ctx.session, "_connection", None))
        self.counts[key] = self.counts.get(key, 0) + 1
        return {"content": [_text(str(self.counts[key]))]}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


async def _serve() -> None:
    reference = Reference()
    async with stdio_server() as (read, write):
        options = reference.server.create_initialization_options(
            NotificationOptions(tools_changed=True, resources_changed=True)
        )
        await reference.server.run(read, write, options)


if __name__ == "__main__":
    asyncio.run(_serve())
