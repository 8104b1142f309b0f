"""What a caller sees in a run: the pinned tools that its allow-list permits, without our own extension (P10, J16), and whether
a server's resources and prompts are there for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from recorder.campaigns import Campaigns
from recorder.mcp_door.shape import OURSELVES
from recorder.runs import RunRow, Runs
from recorder.toolport.offers import READS, only, read_names
from takeback import json
from takeback.auth import Caller
from takeback.errors import not_found
from takeback.extension import EXTENSION

Json = dict[str, Any]
SEPARATOR: Final = "__"


@dataclass(frozen=True, slots=True)
class _Server:
    info: Json
    instructions: str | None
    offers: Json


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who speaks at a place, the instructions that go with its tools, and what it offers beside them (MCP capabilities)."""

    info: Json
    instructions: str | None
    offers: Json


@dataclass(frozen=True, slots=True)
class _Registered:
    """A campaign's servers and tools as of *version* of its stream, the tools in their servers' own order."""

    version: int
    servers: dict[str, _Server]
    tools: dict[tuple[str, str], Json]
    names: dict[str, tuple[str, str]]


class Catalog:
    """What is shown at a place: all servers' tools as ``server__tool``, or one server's under their own names."""

    def __init__(self, pool: asyncpg.Pool, runs: Runs, campaigns: Campaigns) -> None:
        self._pool = pool
        self._runs = runs
        self._campaigns = campaigns
        self._kept: dict[str, _Registered] = {}

    async def tools(self, run: str, server: str | None, caller: Caller) -> list[Json]:
        """The definitions, as the servers gave them; raises the one 404 for strangers and for what is not there."""
        found, registered = await self._at(run, server, caller)
        shown = await self._shown_to(found, caller)
        if server is not None:
            return [tool for of, tool in registered.tools.items() if of[0] == server and shown(of)]
        return [registered.tools[of] | {"name": name} for name, of in registered.names.items() if shown(of)]

    async def resolve(self, run: str, name: str, caller: Caller) -> tuple[str, str] | None:
        """Server and operation behind a name of the place where all servers are shown; None where there is none."""
        server, separator, operation = name.partition(SEPARATOR)
        if not separator:
            return None
        if SEPARATOR not in operation and not operation.startswith("_"):
            return server, operation  # it reads in one way only
        _, registered = await self._at(run, None, caller)
        return registered.names.get(name)

    async def introduction(self, run: str, server: str | None, caller: Caller) -> Introduction:
        """What is said there when a client introduces itself."""
        found, registered = await self._at(run, server, caller)
        if server is None:
            told = [
                f"{name}{SEPARATOR}*: {of.instructions}" for name, of in registered.servers.items() if of.instructions
            ]
            return Introduction(OURSELVES, "\n\n".join(told) or None, {})
        of = registered.servers[server]
        info = of.info or {"name": server, "version": ""}
        return Introduction(info, of.instructions, await self._offered(found, registered, server, caller))

    async def offers(self, run: str, server: str | None, caller: Caller) -> tuple[RunRow, Json]:
        """The run, and what *server* offers the caller beside its tools.

        Nothing where all servers are shown: the address of a resource does not say whose it is.
        """
        found, registered = await self._at(run, server, caller)
        return found, {} if server is None else await self._offered(found, registered, server, caller)

    async def reads(self, run: str, server: str, name: str, caller: Caller) -> bool:
        """Whether *name* is the protocol's own read of what *server* offers, and no tool."""
        _, registered = await self._at(run, server, caller)
        return name in read_names(registered.servers[server].offers)

    async def campaign(self, run: str, server: str | None, caller: Caller) -> tuple[RunRow, list[str]]:
        """The run, and the servers that are shown at the place."""
        found, registered = await self._at(run, server, caller)
        return found, [server] if server is not None else list(registered.servers)

    async def _shown_to(self, run: RunRow, caller: Caller) -> Callable[[tuple[str, str]], bool]:
        """Which operations the caller's allow-list permits."""
        settings = await self._campaigns.settings(run.campaign, run.campaign_version)
        agent = settings.agents.get(caller.sub) if caller.kind == "agent" else None
        allowed = None if agent is None else agent.operations
        return lambda of: allowed is None or f"{of[0]}/{of[1]}" in allowed

    async def _offered(self, run: RunRow, registered: _Registered, server: str, caller: Caller) -> Json:
        if not run.lets_call(caller):
            return {}
        shown = await self._shown_to(run, caller)
        readable = [name for name in READS.values() if shown((server, name))]
        return only(registered.servers[server].offers, readable)

    async def _at(self, run: str, server: str | None, caller: Caller) -> tuple[RunRow, _Registered]:
        found = await self._runs.get(run, caller)
        registered = self._kept.get(found.campaign)
        if registered is None or registered.version != found.campaign_version:
            registered = self._kept[found.campaign] = await self._read(found.campaign)
        if server is not None and server not in registered.servers:
            raise not_found()
        return found, registered

    async def _read(self, campaign: str) -> _Registered:
        async with (
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            version = await connection.fetchval("select seq from streams where stream = $1", campaign)
            servers = await connection.fetch(
                "select name, capabilities from servers where campaign = $1 order by name", campaign
            )
            rows = await connection.fetch(
                "select server, operation, definition from operations where campaign = $1"
                " order by server, place, operation",
                campaign,
            )
        definitions = {(row["server"], row["operation"]): json.loads(row["definition"]) for row in rows}
        known = {row["name"]: _server(row["capabilities"]) for row in servers}
        reads = {(name, read) for name, server in known.items() for read in read_names(server.offers)}
        tools = {of: _shown(definition) for of, definition in definitions.items() if of not in reads}
        names: dict[str, tuple[str, str]] = {}
        for of in tools:  # of two that would read the same the first keeps the name; each has its own at its server
            names.setdefault(SEPARATOR.join(of), of)
        return _Registered(version or 0, known, tools, names)


def _server(capabilities: str | None) -> _Server:
    known = json.loads(capabilities) if capabilities else {}
    # One that was registered by a release before has no offers, until it is registered anew.
    return _Server(known.get("serverInfo") or {}, known.get("instructions"), known.get("offers") or {})


def _shown(definition: Json) -> Json:
    meta = definition.get("_meta")
    if not isinstance(meta, dict) or EXTENSION not in meta:
        return definition
    others = {key: value for key, value in meta.items() if key != EXTENSION}
    return {key: value for key, value in definition.items() if key != "_meta"} | ({"_meta": others} if others else {})
