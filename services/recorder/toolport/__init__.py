"""How the recorder talks to tool servers: one small port (`port`), MCP and NATS behind it, `open_port` to get one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client as Nats

from recorder.manifest import Checked
from recorder.toolport import secrets
from recorder.toolport.http_target import Pin, Target, check_url
from recorder.toolport.http_tool import http_port
from recorder.toolport.manifested import ManifestPort, Reach
from recorder.toolport.mcp_http import http_transport
from recorder.toolport.mcp_post import HttpPosts
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


async def open_port(
    config: Mapping[str, Any],
    nats: Nats,
    environ: Mapping[str, str],
    manifest: Checked | None = None,
    reach: Reach | None = None,
) -> ToolPort:
    """The port to the tool server that *config* names (``PUT …/servers/{name}``). It connects at its first use.

    With a *manifest*, the port that declares what that says; *reach* gives it the campaign's other servers.

    Raises `ToolRefused` for a configuration that may not be used: a transport that is not spoken, a secret whose name
    does not start with ``TAKEBACK_SECRET_`` or that is not bound to where it would go, a command without
    ``TAKEBACK_ALLOW_COMMANDS=1``.
    """
    if config.get("transport") == "http":
        if manifest is None:
            raise ToolRefused("A plain HTTP server needs a manifest that says which operations it has.")
        plain: ToolPort = http_port(config, manifest.manifest, environ)
        return ManifestPort(plain, manifest, reach or _nowhere)
    inner = _declaring_port(config, nats, environ)
    return inner if manifest is None else ManifestPort(inner, manifest, reach or _nowhere)


async def _nowhere(server: str) -> ToolPort:
    raise NotSent(f"There is no way to the tool server {server} from here. Nothing was sent.")


def _declaring_port(config: Mapping[str, Any], nats: Nats, environ: Mapping[str, str]) -> ToolPort:
    match config:
        case {"transport": "nats", "subject": str(subject)}:
            return NatsTool(nats, subject)
        case {"transport": "mcp", "url": str(url)}:
            headers = config.get("headers") or {}
            check_url(url)
            secrets.check_headers(headers, environ, url)
            pin = None if environ.get("TAKEBACK_HTTP_ALLOW_PRIVATE") == "1" else Pin(Target.server_of(url))
            posts = HttpPosts(url, headers, environ, pin)
            return McpTool(http_transport(url, headers, environ, pin), url, posts)
        case {"transport": "mcp", "command": str(command)}:
            if environ.get("TAKEBACK_ALLOW_COMMANDS") != "1":
                raise ToolRefused("Commands may not be started here: TAKEBACK_ALLOW_COMMANDS is not 1.", 403)
            env = config.get("env") or {}
            secrets.check(env, environ, None)
            return McpTool(stdio_transport(command, config.get("args") or [], env, environ), command)
    raise ToolRefused(f"No tool server can be reached by transport {config.get('transport')!r} with these settings.")
