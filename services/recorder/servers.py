"""Tool servers of a campaign: registered by an owner, connected to, their operations pinned by hash (J15, J16)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import asyncpg
import structlog
from nats.aio.client import Client as NatsClient

from recorder.campaigns import Campaigns
from recorder.journal import Journal, NewRecord, Unit
from recorder.manifest import BadManifest, Checked, Finding, against, read_manifest
from recorder.pinning import PinnedOperation, Source, can_preview, difference
from recorder.settings import Settings
from recorder.toolport import open_port
from recorder.toolport.port import Description, NotSent, Operation, ToolPort, ToolPortError
from takeback import json
from takeback.auth import Caller
from takeback.errors import Problem, invalid, not_found, unavailable
from takeback.extension import read_definition
from takeback.ids import is_valid_id, new_id
from takeback.messages import campaign as messages

log = structlog.get_logger()
DESCRIBE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Registration:
    """How a server is reached, as JSON, and its manifest's document, as JSON."""

    transport: str
    manifest: str | None = None


@dataclass(slots=True)
class _Connected:
    """An open port, the registration it was opened for, and the definitions that its server showed last."""

    port: ToolPort
    registered: Registration
    seen: dict[str, Operation] = field(default_factory=dict)
    seen_at: float = 0.0
    checking: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _Registered:
    """A campaign's servers as of *version* of its stream, whose record there has this *hash*."""

    version: int
    hash: bytes | None
    transports: dict[str, Registration]
    operations: dict[tuple[str, str], PinnedOperation]


_HEAD: Final = "select seq, hash from streams where stream = $1"
"""How far a campaign's own stream is."""
_SINCE: Final = """
select seq, hash, exists (select from records where stream = $1 and seq = $2 and hash = $3)
    and not exists (select from records where stream = $1 and seq > $2 and type = 'server.changed') as unchanged
from streams where stream = $1
"""
"""The same, and whether no server was registered after that version; a restored journal has another record there, or none."""


class Servers:
    """Registering tool servers, and reaching them. One open port per campaign and server in each process."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        journal: Journal,
        campaigns: Campaigns,
        nats: NatsClient,
        settings: Settings,
        environ: Mapping[str, str],
    ) -> None:
        self._pool = pool
        self._journal = journal
        self._campaigns = campaigns
        self._nats = nats
        self._settings = settings
        self._environ = {**environ, **settings.switches()}
        self._registered: dict[str, _Registered] = {}
        self._ports: dict[tuple[str, str], _Connected] = {}
        self._opening: dict[tuple[str, str], asyncio.Lock] = {}

    async def put(
        self,
        campaign: str,
        caller: Caller,
        name: str,
        wanted: messages.McpHttp | messages.NatsServer | messages.HttpServer,
    ) -> dict[str, Any]:
        """Connects to the server, lists its operations and pins them; raises 422 that says what is wrong with it."""
        await self._campaigns.require_owner(campaign, caller, "register tool servers")
        if not self._settings.may_register(caller.sub):
            raise await self._campaigns.security.refuse(campaign, caller, "register tool servers in this installation")
        if not is_valid_id(name):
            raise invalid("A server's name is 1 to 64 letters, digits, dashes and underscores.")
        if isinstance(wanted, messages.McpHttp) and wanted.command is not None and not self._settings.allow_commands:
            raise Problem(
                403,
                "commands-off",
                "This installation starts no commands; set TAKEBACK_ALLOW_COMMANDS=1 on the recorders to allow it."
                " Nothing was changed.",
            )
        checked = None if wanted.manifest is None else _manifest(wanted.manifest)
        transport = wanted.model_dump(mode="json", by_alias=True, exclude={"manifest"})
        described = await self._describe_new(campaign, transport, checked, wanted.manifest)
        pinned = [_pinned(name, operation, described, checked) for operation in described.operations]
        manifest = None if checked is None else json.dumps(checked.document).decode()
        body = {
            "campaign": campaign,
            "name": name,
            "transport": wanted.transport,
            "operations": [operation.described() for operation in pinned],
            "by": {"sub": caller.sub, "kind": caller.kind},
        }
        record = NewRecord(
            stream=campaign,
            campaign=campaign,
            kind="campaign",
            id=new_id("rec"),
            type="server.changed",
            body=json.dumps(body),
            published=True,
        )
        capabilities = {
            "undoTool": described.undo_tool,
            "observeTool": described.observe_tool,
            "previewTool": described.preview_tool,
            "serverInfo": described.info,
            "instructions": described.instructions,
            "offers": described.offers,
        }
        async with self._journal.transaction() as tx:
            await tx.append(Unit(records=[record]))
            await tx.execute(
                "insert into servers (campaign, name, transport, capabilities, manifest) values ($1, $2, $3, $4, $5)"
                " on conflict (campaign, name) do update set transport = excluded.transport,"
                " capabilities = excluded.capabilities, manifest = excluded.manifest, changed_at = now()",
                campaign, name, json.dumps(transport).decode(), json.dumps(capabilities).decode(), manifest,
            )  # fmt: skip
            await tx.execute("delete from operations where campaign = $1 and server = $2", campaign, name)
            for place, (operation, definition) in enumerate(zip(pinned, described.operations, strict=True)):
                await tx.execute(
                    "insert into operations (campaign, server, operation, definition, source, pin, place)"
                    " values ($1, $2, $3, $4, $5, $6, $7)",
                    campaign, name, operation.name, json.dumps(definition.definition).decode(), operation.source,
                    operation.pin, place,
                )  # fmt: skip
        return await self._wire(campaign, name)

    async def describe(self, campaign: str, caller: Caller, name: str) -> dict[str, Any]:
        """The server's operations as they are pinned."""
        await self._campaigns.require(campaign, caller)
        return await self._wire(campaign, name)

    async def operation(self, campaign: str, version: int, server: str, operation: str) -> PinnedOperation:
        """The pinned operation, as of the campaign stream's *version*; raises 422 where there is none of that name."""
        registered = await self._servers(campaign, version)
        found = registered.operations.get((server, operation))
        if found is None:
            known = "no such operation" if server in registered.transports else "no such tool server"
            raise Problem(
                422, "unknown-operation", f"{server}/{operation}: {known} in this campaign. Nothing was forwarded."
            )
        connected = self._ports.get((campaign, server))
        if connected is None or connected.registered != registered.transports[server]:
            return found
        self._check_pins_when_due(connected)
        if not connected.seen:
            return found
        seen = connected.seen.get(operation)
        if seen is not None and seen.pin == found.pin:
            return found
        return replace(found, changed=True, difference=difference(found.definition, seen))

    async def exercised(self, campaign: str, operation: PinnedOperation) -> bool:
        """Whether the undo of *operation*, as it is pinned, was verified by now: in a conformance run or a plan (P4)."""
        wanted = "select from exercised where campaign = $1 and server = $2 and operation = $3 and pin = $4"
        key = (campaign, operation.server, operation.name, operation.pin)
        return bool(await self._pool.fetchval(f"select exists ({wanted})", *key))

    async def port(self, campaign: str, server: str, version: int | None = None) -> ToolPort:
        """An open port to the server; raises 503 `tool-unreachable` when it cannot be reached."""
        registered = await self._servers(campaign, version)
        registration = registered.transports.get(server)
        if registration is None:
            raise not_found()
        kept = self._ports.get((campaign, server))
        if kept is not None and kept.registered == registration:
            return kept.port
        async with self._opening.setdefault((campaign, server), asyncio.Lock()):
            kept = self._ports.get((campaign, server))
            if kept is not None and kept.registered == registration:
                return kept.port
            if kept is not None:
                await self._forget(campaign, server)
            manifest = None if registration.manifest is None else read_manifest(json.loads(registration.manifest))
            try:
                port = await self._open(campaign, json.loads(registration.transport), manifest)
            except ToolPortError as error:
                raise unavailable(
                    "tool-unreachable", f"The tool server {server} cannot be used here: {error} Nothing was forwarded."
                ) from error
            connected = _Connected(port, registration)
            try:
                await self._check_pins(connected)
            except ToolPortError as error:
                await port.close()
                raise unavailable(
                    "tool-unreachable", f"The tool server {server} cannot be reached: {error}. Nothing was forwarded."
                ) from error
            self._ports[campaign, server] = connected
            return port

    async def close(self) -> None:
        """Closes every port."""
        for campaign, server in list(self._ports):
            await self._forget(campaign, server)

    async def _forget(self, campaign: str, server: str) -> None:
        connected = self._ports.pop((campaign, server))
        if connected.checking is not None:
            connected.checking.cancel()
        await connected.port.close()

    async def _open(self, campaign: str, transport: dict[str, Any], manifest: Checked | None) -> ToolPort:
        async def reach(server: str) -> ToolPort:
            try:
                return await self.port(campaign, server)
            except Problem as problem:
                raise NotSent(f"The tool server {server} cannot be reached: {problem.detail}") from problem

        return await open_port(transport, self._nats, self._environ, manifest, reach)

    async def _describe_new(
        self, campaign: str, transport: dict[str, Any], checked: Checked | None, source: Any
    ) -> Description:
        try:
            port = await self._open(campaign, transport, checked)
        except (ValueError, ToolPortError) as error:
            raise invalid(f"The tool server cannot be used: {error}") from error
        try:
            described = await port.describe(deadline=DESCRIBE_SECONDS)
            for operation in described.operations:
                json.check(operation.definition)
            if checked is not None:
                wrong = against(source, checked.manifest, described.tools or {}, http=transport["transport"] == "http")
                if wrong:
                    raise _refused(wrong)
            return described
        except ToolPortError as error:
            raise invalid(f"The tool server could not be asked for its operations: {error}.") from error
        finally:
            await port.close()

    def _check_pins_when_due(self, connected: _Connected) -> None:
        due = connected.seen_at + self._settings.pin_check_seconds < time.monotonic()
        if due and (connected.checking is None or connected.checking.done()):
            connected.checking = asyncio.create_task(self._recheck(connected))

    async def _recheck(self, connected: _Connected) -> None:
        try:
            await self._check_pins(connected)
        except ToolPortError as error:
            # The server is away: a call finds that out by itself, and the pins that were seen last still hold.
            log.warning("definitions could not be read again", error=str(error))

    async def _check_pins(self, connected: _Connected) -> None:
        described = await connected.port.describe(deadline=DESCRIBE_SECONDS)
        connected.seen = {operation.name: operation for operation in described.operations}
        connected.seen_at = time.monotonic()

    async def _wire(self, campaign: str, name: str) -> dict[str, Any]:
        registered = await self._servers(campaign, None)
        if name not in registered.transports:
            raise not_found()
        transport = json.loads(registered.transports[name].transport)
        rows = await self._pool.fetch(
            "select operation, pin from exercised where campaign = $1 and server = $2", campaign, name
        )
        exercised = {(row["operation"], row["pin"]) for row in rows}
        operations = [
            replace(operation, exercised=(operation.name, operation.pin) in exercised).described()
            for (server, _), operation in sorted(registered.operations.items())
            if server == name
        ]
        return {"name": name, "transport": transport["transport"], "operations": operations}

    async def _servers(self, campaign: str, version: int | None) -> _Registered:
        kept = self._registered.get(campaign)
        if kept is not None:
            if version == kept.version:
                return kept
            head = await self._pool.fetchrow(_SINCE, campaign, kept.version, kept.hash)
            if head is not None and head["unchanged"]:
                kept = self._registered[campaign] = replace(kept, version=head["seq"], hash=head["hash"])
                return kept
        async with (
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            head = await connection.fetchrow(_HEAD, campaign)
            servers = await connection.fetch("select * from servers where campaign = $1", campaign)
            rows = await connection.fetch(
                "select o.*, exists (select from exercised e where e.campaign = o.campaign and e.server = o.server"
                " and e.operation = o.operation and e.pin = o.pin) as exercised from operations o where o.campaign = $1",
                campaign,
            )
        tools = {row["name"]: json.loads(row["capabilities"]) for row in servers}
        manifests = {row["name"]: read_manifest(json.loads(row["manifest"])) for row in servers if row["manifest"]}
        registered = _Registered(
            0 if head is None else head["seq"],
            None if head is None else head["hash"],
            {row["name"]: Registration(row["transport"], row["manifest"]) for row in servers},
            {
                (row["server"], row["operation"]): _read(row, tools[row["server"]], manifests.get(row["server"]))
                for row in rows
            },
        )
        self._registered[campaign] = registered
        return registered


def _manifest(source: Any) -> Checked:
    """The manifest in *source*; raises 422 with every finding."""
    if not isinstance(source, str | dict):
        raise invalid("A manifest is YAML text or a JSON object.")
    try:
        return read_manifest(source)
    except BadManifest as error:
        raise _refused(error.findings) from error


def _refused(findings: list[Finding]) -> Problem:
    told = [{"field": finding.where, "line": finding.line, "reason": finding.reason} for finding in findings[:50]]
    first = "; ".join(str(finding) for finding in findings[:5])
    return invalid(f"The manifest does not fit: {first}.", errors=told)


def _pinned(server: str, operation: Operation, described: Description, checked: Checked | None) -> PinnedOperation:
    return PinnedOperation(
        server=server,
        name=operation.name,
        declaration=operation.declaration,
        input_schema=operation.input_schema,
        pin=operation.pin,
        source=_source(operation.name, checked, declared=operation.declaration.declared),
        exercised=False,
        can_observe=described.observe_tool is not None,
        can_preview=can_preview(operation.name, described.preview_tool, checked),
    )


def _source(operation: str, checked: Checked | None, *, declared: bool) -> Source:
    if checked is not None and operation in checked.manifest.operations:
        return "manifest"
    return "declared" if declared else "none"


def _read(row: asyncpg.Record, tools: dict[str, Any], checked: Checked | None) -> PinnedOperation:
    definition = json.loads(row["definition"])
    return PinnedOperation(
        server=row["server"],
        name=row["operation"],
        declaration=read_definition(definition.get("_meta")),
        input_schema=definition.get("inputSchema") or {"type": "object"},
        pin=row["pin"],
        source=row["source"],
        exercised=row["exercised"],
        can_observe=tools["observeTool"] is not None,
        can_preview=can_preview(row["operation"], tools["previewTool"], checked),
        definition=definition,
        manifest=checked if row["source"] == "manifest" else None,
    )
