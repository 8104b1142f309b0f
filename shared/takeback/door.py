"""The HTTP server of a stack or of one service: a socket that is bound first, so that its port is known, and uvicorn."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Self

import uvicorn

from takeback.edge import Edge

DEFAULT_PORT = 8420
_DRAIN_SECONDS = 3


class PortInUse(Exception):
    """Something else listens on the port that was asked for. Nothing was started."""


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket: *port*, any free one for 0; for None 8420, or a free one where that is taken.

    Raises PortInUse.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = [DEFAULT_PORT, 0] if port is None else [port]
    for number in wanted:
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, number))
            bound.listen(2048)  # only now the port is ours: two sockets may be bound to one, but not listen
        except OSError as reason:
            bound.close()
            if reason.errno != errno.EADDRINUSE:
                raise
            continue
        return bound
    raise PortInUse(
        f"Port {port} on {host} is in use by another program. Nothing was started. Choose another one with --port, "
        "or --port 0 for any free one."
    )


class Door:
    """Serves *edge* on *bound* while the context is open; requests in hand are finished on the way out."""

    def __init__(self, edge: Edge, bound: socket.socket) -> None:
        self._edge = edge
        self._bound = bound
        self._server = _Uvicorn(
            uvicorn.Config(
                edge,
                http="httptools",
                ws="websockets-sansio",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # nothing here asks for the client's address or scheme
                timeout_graceful_shutdown=_DRAIN_SECONDS,
            )
        )

    @property
    def url(self) -> str:
        """Where a client on this machine reaches it."""
        return url_of(self._bound)

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._server.serve([self._bound]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
            await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._edge.close()
        self._server.should_exit = True
        await self._serving


class _Uvicorn(uvicorn.Server):
    """Uvicorn without its signal handlers: the stack has its own, which stop more than the door."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def url_of(bound: socket.socket) -> str:
    """Where a client on this machine reaches *bound*."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104  where it is bound to all, a client is told one
    return f"http://{host}:{port}"
