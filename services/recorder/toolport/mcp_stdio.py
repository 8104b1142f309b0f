"""MCP over the stdin and stdout of a child process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mcp.client._transport import TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client

from recorder.toolport import secrets


def stdio_transport(
    command: str, args: Sequence[str], env: Mapping[str, str], environ: Mapping[str, str]
) -> Callable[[], AbstractAsyncContextManager[TransportStreams]]:
    """Starts *command* for each connection. It inherits a few harmless variables and gets *env*, secrets resolved."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[TransportStreams]:
        parameters = StdioServerParameters(command=command, args=list(args), env=secrets.resolve(env, environ, None))
        async with stdio_client(parameters) as streams:
            yield streams

    return connect
