"""The tools that a caller sees in a run: the pinned ones that its allow-list permits, without our own extension (P10, J16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from recorder.campaigns import Campaigns
from recorder.mcp_door.shape import OURSELVES
from recorder.runs import RunRow, Runs
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
        settings = await self._campaigns.settings(found.campaign, found.campaign_version)
        agent = settings.agents.get(caller.sub) if caller.kind == "agent" else None
        allowed = None if agent is None else agent.operations

        def shown(of: tuple[str, str]) -> bool:
            return allowed is None or f"{of[0]}/{of[1]}" in allowed

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

    async def introduction(self, run: str, server: str | None, caller: Caller) -> tuple[Json, str | None]:
        """Who speaks there, and the instructions that go with its tools."""
        _, registered = await self._at(run, server, caller)
        if server is not None:
            of = registered.servers[server]
            return of.info or {"name": server, "version": ""}, of.instructions
        told = [f"{name}{SEPARATOR}*: {of.instructions}" for name, of in registered.servers.items() if of.instructions]
        return OURSELVES, "\n\n".join(told) or None

    async def campaign(self, run: str, server: str | None, caller: Caller) -> tuple[RunRow, list[str]]:
        """The run, and the servers that are shown at the place."""
        found, registered = await self._at(run, server, caller)
        return found, [server] if server is not None else list(registered.servers)

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
        tools = {(row["server"], row["operation"]): _shown(json.loads(row["definition"])) for row in rows}
        names: dict[str, tuple[str, str]] = {}
        for of in tools:  # of two that would read the same the first keeps the name; each has its own at its server
            names.setdefault(SEPARATOR.join(of), of)
        return _Registered(version or 0, {row["name"]: _server(row["capabilities"]) for row in servers}, tools, names)


def _server(capabilities: str | None) -> _Server:
    known = json.loads(capabilities) if capabilities else {}
    return _Server(known.get("serverInfo") or {}, known.get("instructions"))


def _shown(definition: Json) -> Json:
    meta = definition.get("_meta")
    if not isinstance(meta, dict) or EXTENSION not in meta:
        return definition
    others = {key: value for key, value in meta.items() if key != EXTENSION}
    return {key: value for key, value in definition.items() if key != "_meta"} | ({"_meta": others} if others else {})
