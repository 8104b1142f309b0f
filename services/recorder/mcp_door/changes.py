"""Telling open streams that what is listed in a run may have changed: another server, other pins, another allow-list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any, Final, get_args

import structlog
from nats.aio.client import Client as Nats

from recorder.runs import RunRow
from recorder.servers import Servers
from recorder.toolport.hearing import Changing, Kind
from recorder.toolport.port import ToolPort
from takeback import bus
from takeback.errors import Problem
from takeback.subjects import event_subject

log = structlog.get_logger()
_CHANGES: Final = ("server.changed", "agent.changed")


class Changed:
    """The lists that may have changed since they were last taken."""

    def __init__(self) -> None:
        self._kinds: set[Kind] = set()
        self._noted = asyncio.Event()

    def note(self, kind: Kind) -> None:
        """That list may have changed."""
        self._kinds.add(kind)
        self._noted.set()

    async def take(self) -> set[Kind]:
        """Waits until there is one, and answers them all."""
        await self._noted.wait()
        self._noted.clear()
        taken, self._kinds = self._kinds, set()
        return taken


class _Listened:
    """The tool servers that are listened to: each at the port that is open to it now."""

    def __init__(self, tell: Callable[[Kind], None]) -> None:
        self._tell = tell
        self._ports: dict[str, tuple[ToolPort, ExitStack]] = {}
        self._ended = False

    def to(self, server: str, port: ToolPort) -> None:
        """Listens to *server* at *port*, and no longer where it was heard before."""
        known = self._ports.get(server)
        if self._ended or (known is not None and known[0] is port):
            return
        if known is not None:
            known[1].close()
        stack = ExitStack()
        if isinstance(port, Changing):
            stack.enter_context(port.changes(self._tell))
        self._ports[server] = (port, stack)

    def end(self) -> None:
        """Listens to none any more."""
        self._ended = True
        for _, stack in self._ports.values():
            stack.close()


class Changes:
    """Listens on the bus, so that whichever replica made the change, the streams of all of them hear of it."""

    def __init__(self, nats: Nats, servers: Servers) -> None:
        self._nats = nats
        self._servers = servers

    @asynccontextmanager
    async def of(self, run: RunRow, servers: Sequence[str]) -> AsyncIterator[Changed]:
        """What has changed meanwhile of the lists of *servers* in the run's campaign."""
        changed = Changed()

        async def heard(_: Any) -> None:
            for kind in get_args(Kind):
                changed.note(kind)
            await attend()

        async def attend() -> None:
            for server in servers:
                try:
                    listened.to(server, await self._servers.port(run.campaign, server))
                except Problem as problem:
                    log.info("a tool server's changes cannot be heard", server=server, why=problem.detail)

        listened = _Listened(changed.note)
        async with AsyncExitStack() as stack:
            stack.callback(listened.end)
            for what in _CHANGES:
                subscription = await self._nats.subscribe(event_subject(run.campaign, what), cb=heard)
                stack.push_async_callback(subscription.unsubscribe)
            await bus.settle(self._nats)  # from here on nothing is missed
            await attend()
            yield changed
