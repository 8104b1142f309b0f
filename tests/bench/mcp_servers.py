"""What the MCP door is measured beside: a tool server, and an empty pass-through to it, both made with the MCP SDK alone.

`python -m tests.bench.mcp_servers tool`, and `python -m tests.bench.mcp_servers through URL`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import AsyncExitStack
from typing import Any

import mcp_types as types
import uvicorn
import uvloop
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel.server import Server

from takeback.extension import EXTENSION
from tests.bench.tool import SCHEMA, WRITE, declared

_READ = {"readOnly": True, "resource": "bench://record/{id}"}
TOOLS = [
    types.Tool.model_validate({"name": name, "inputSchema": SCHEMA, "_meta": {EXTENSION: said}})
    for name, said in (("write", WRITE), ("read", _READ))
] + [
    types.Tool.model_validate({"name": role, "inputSchema": {"type": "object"}, "_meta": {EXTENSION: {"role": role}}})
    for role in ("undo", "observe")
]


async def _list(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


def tool() -> Server[Any]:
    """A server whose tools do nothing; the write declares what it would have done."""
    versions = itertools.count(1)

    async def call(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        content: list[Any] = [types.TextContent(type="text", text=str(arguments["n"]))]
        if params.name == "read":
            return types.CallToolResult(content=content, structured_content={"n": arguments["n"]})
        meta = {EXTENSION: declared(arguments, next(versions))}
        return types.CallToolResult(content=content, structured_content={"n": arguments["n"]}, _meta=meta)

    return Server("bench", version="1", on_list_tools=_list, on_call_tool=call, get_tool_input_schema=lambda _: None)


async def through(url: str, stack: AsyncExitStack) -> Server[Any]:
    """A server that passes each call on over one open session, and nothing else."""
    client = await stack.enter_async_context(Client(streamable_http_client(url), cache=None))

    async def call(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await client.call_tool(params.name, params.arguments)

    return Server("through", version="1", on_list_tools=_list, on_call_tool=call, get_tool_input_schema=lambda _: None)


async def main(which: str, url: str = "") -> None:
    """Serves until it is killed."""
    async with AsyncExitStack() as stack:
        app = (tool() if which == "tool" else await through(url, stack)).streamable_http_app(json_response=True)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, http="httptools"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(f"ready at http://127.0.0.1:{port}/mcp", flush=True)
        await serving


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
