"""How the recorder talks to tool servers: one small port (`port`), MCP and NATS behind it, `open_port` to get one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client as Nats

from recorder.toolport import secrets
from recorder.toolport.mcp_http import http_transport
from recorder.toolport.mcp_stdio import stdio_transport
from recorder.toolport.mcp_tool import McpTool
from recorder.toolport.nats_transport import NatsTool
from recorder.toolport.port import (
    Description,
    NoAnswer,
    NotSent,
    Operation,
    Outcome,
    Preview,
    ToolPort,
    ToolPortError,
    ToolRefused,
    Unsupported,
    pin_of,
)

__all__ = [
    "Description",
    "NoAnswer",
    "NotSent",
    "Operation",
    "Outcome",
    "Preview",
    "ToolPort",
    "ToolPortError",
    "ToolRefused",
    "Unsupported",
    "open_port",
    "pin_of",
]


async def open_port(config: Mapping[str, Any], nats: Nats, environ: Mapping[str, str]) -> ToolPort:
    """The port to the tool server that *config* names (``PUT …/servers/{name}``). It connects at its first use.

    Raises `ToolRefused` for a configuration that may not be used: a transport that is not spoken, a secret whose name
    does not start with ``TAKEBACK_SECRET_``, a command without ``TAKEBACK_ALLOW_COMMANDS=1``.
    """
    match config:
        case {"transport": "nats", "subject": str(subject)}:
            return NatsTool(nats, subject)
        case {"transport": "mcp", "url": str(url)}:
            headers = config.get("headers") or {}
            secrets.check(headers)
            return McpTool(http_transport(url, headers, environ), url)
        case {"transport": "mcp", "command": str(command)}:
            if environ.get("TAKEBACK_ALLOW_COMMANDS") != "1":
                raise ToolRefused("Commands may not be started here: TAKEBACK_ALLOW_COMMANDS is not 1.", 403)
            env = config.get("env") or {}
            secrets.check(env)
            return McpTool(stdio_transport(command, config.get("args") or [], env, environ), command)
    raise ToolRefused(f"No tool server can be reached by transport {config.get('transport')!r} with these settings.")
