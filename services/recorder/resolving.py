"""Resolving a call: who asks, in which run, which operation, with arguments that its schema takes, about which records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import asyncpg
import jsonschema_rs

from recorder import policy
from recorder.campaigns import Campaigns, CampaignSettings
from recorder.group_reader import GroupReader
from recorder.journal import Idempotency
from recorder.pinning import PinnedOperation
from recorder.policy import Decision, Question
from recorder.resources import Resources, serial_key_of
from recorder.runs import RUN, RunRow, Runs
from recorder.servers import Servers
from takeback import json
from takeback.auth import Caller
from takeback.errors import Problem, invalid
from takeback.extension import UndoTemplate
from takeback.ids import new_id
from takeback.messages.campaign import Serialize
from takeback.messages.entry import CallRequest, EntryKind, Unresolved

_CACHED_VALIDATORS: Final = 2000
_REMEMBERED_RUNS: Final = 10_000
_REPAIRABLE: Final = ("committed", "failed", "in_doubt", "reverting", "reverted")


class Outdated(Exception):
    """What was remembered of a run may no longer hold: look again. Nothing was written."""


class Call(NamedTuple):
    """A call that may be made as far as everything but policy is concerned. *entry* is the id that it gets.

    *serial_key* is what it is serialized by (J19): None for a read, and where the campaign wants no order. *remembered*: it
    goes by what was seen of its run before. *fetched*: only while no answer of its run waits to be fetched (S13).
    """

    entry: str
    caller: Caller
    run: RunRow
    settings: CampaignSettings
    operation: PinnedOperation
    request: CallRequest
    resources: Resources
    kind: EntryKind
    agent: str
    model: str
    principal: str
    serial_key: str | None
    idempotency: Idempotency | None = None
    depends_on: Sequence[str] = ()
    unresolved: Sequence[Unresolved] = ()
    doubt: str | None = None
    remembered: bool = False
    fetched: bool = False

    @property
    def campaign(self) -> str:
        """The campaign of the call's run."""
        return self.run.campaign

    @property
    def is_read(self) -> bool:
        """Whether the operation is declared to change nothing; a mere hint never says so."""
        return self.operation.declaration.read_only

    @property
    def arguments_hash(self) -> str:
        """What makes a second call the same call (S2)."""
        return arguments_hash(self.operation.server, self.operation.name, self.request.arguments)

    def question(self, doubt: str | None = None) -> Question:
        """What policy is asked about the call; *doubt*: the earlier entry whose outcome is not known."""
        declared = self.operation.declaration
        window = declared.undo.window
        return Question(
            operation=f"{self.operation.server}/{self.operation.name}",
            read=self.is_read,
            undo=declared.undo.kind,
            via=declared.undo.via,
            window_seconds=None if window is None else window.total_seconds(),
            versioned=declared.versioned,
            exercised=self.operation.exercised,
            pin_changed=self.operation.changed,
            pin_difference=self.operation.difference,
            repairs=self.kind in ("remedy", "correction"),
            doubt=doubt,
            attended_in=None
            if window is None
            else self.settings.attended_in(self.principal, declared.undo.undo_authority),
        )

    def decision(self, doubt: str | None = None) -> Decision:
        """What policy says of the call (P1); see `question`."""
        return policy.decide(self.settings.policy, self.question(doubt))

    def with_undo(self, undo: UndoTemplate) -> Call:
        """The same call once it is known how it could be taken back from the state that it finds (J4)."""
        declaration = self.operation.declaration.model_copy(update={"undo": undo})
        return self._replace(operation=replace(self.operation, declaration=declaration))

    @property
    def host_replaces_default(self) -> bool:
        """A host's own links replace the default one only from a `service` token (contract.md, Bus)."""
        given = self.request.model_fields_set & {"uses", "depends_on"}
        return self.caller.kind == "service" and bool(given)


def arguments_hash(server: str, operation: str, arguments: Mapping[str, Any]) -> str:
    """The same for the same operation with the same arguments, whatever the order of their members."""
    return hashlib.sha256(json.dumps([server, operation, arguments])).hexdigest()


class Resolver:
    """Turns a request into a `Call`, or refuses it; writes nothing but the security log."""

    def __init__(
        self, pool: asyncpg.Pool, group_reader: GroupReader, campaigns: Campaigns, runs: Runs, servers: Servers
    ) -> None:
        self._pool = pool
        self._group_reader = group_reader
        self._campaigns = campaigns
        self._runs = runs
        self._servers = servers
        self._validators: dict[str, Any] = {}
        self._met: dict[tuple[str, Caller], RunRow] = {}

    async def call(self, run: str, caller: Caller, request: CallRequest) -> Call:
        """The call that *request* asks for.

        Raises `Problem`: 404 for a stranger, 403 for who may not call here (P10), 409 for a run that is not open, 422 for
        arguments that the operation's schema does not take.
        """
        return await self.met(await self.look(run, caller), caller, request)

    async def look(self, run: str, caller: Caller) -> RunRow:
        """`meet`, and remember it."""
        found = await self.meet(run, caller)
        if len(self._met) >= _REMEMBERED_RUNS:
            self._met.clear()
        self._met[run, caller] = found
        return found

    async def meet(self, run: str, caller: Caller) -> RunRow:
        """The run as *caller* meets it now; raises `Problem` 404 for a stranger (G7)."""
        return await self._runs.met(await self._group_reader.one(RUN, run, caller.sub), caller)

    def remembered(self, run: str, caller: Caller) -> RunRow | None:
        """The run as *caller* met it last: it may have moved on since."""
        return self._met.get((run, caller))

    def forget(self, call: Call) -> None:
        """The call's run has moved on."""
        self._met.pop((call.run.id, call.caller), None)

    async def resolved(self, found: RunRow, caller: Caller, request: CallRequest) -> Call:
        """The same from a run that is remembered; raises `Outdated` for whatever a look might answer otherwise."""
        try:
            return await self.met(found, caller, request, remembered=True)
        except Problem as problem:
            raise Outdated from problem

    async def met(self, found: RunRow, caller: Caller, request: CallRequest, *, remembered: bool = False) -> Call:
        """The call from a run that was looked at just now; see `call`, and `resolved` for one that is *remembered*."""
        settings = await self._campaigns.settings(found.campaign, found.campaign_version)
        await self._check_caller(found, settings, caller, request, remembered)
        if found.status != "open":
            raise not_open(found.status)
        operation = await self._operation(found, settings, request)
        unresolved = self._check_arguments(operation, request.arguments)
        principal = await self._principal(found, settings, caller, request, remembered)
        kind = await self._kind(found, operation, request)
        depends_on: Sequence[str] = request.depends_on
        if depends_on:
            depends_on, broken = await self._known_entries(found.campaign, depends_on)
            unresolved = [*unresolved, *broken]
        resources = operation.resources(request.arguments)
        return Call(
            entry=new_id("ent"),
            caller=caller,
            run=found,
            settings=settings,
            operation=operation,
            request=request,
            resources=resources,
            kind=kind,
            agent=request.agent or found.agent,
            model=request.model or found.model,
            principal=principal,
            serial_key=_serial_key(found, settings, operation, resources),
            depends_on=depends_on,
            unresolved=unresolved,
            remembered=remembered,
        )

    async def again(self, run: str, caller: Caller, request: CallRequest, entry: str, kept: Mapping[str, Any]) -> Call:
        """The call of an entry that waited for a person, as things are now; *kept* is the entry as it was written."""
        found = await self.meet(run, caller)
        settings = await self._campaigns.settings(found.campaign, found.campaign_version)
        await self._check_caller(found, settings, caller, request)
        operation = await self._operation(found, settings, request)
        self._check_arguments(operation, request.arguments)
        resources = operation.resources(request.arguments)
        return Call(
            entry=entry,
            caller=caller,
            run=found,
            settings=settings,
            operation=operation,
            request=request,
            resources=resources,
            kind=kept["kind"],
            agent=kept["agent"],
            model=kept["model"],
            principal=kept["principal"],
            serial_key=_serial_key(found, settings, operation, resources),
            depends_on=request.depends_on,
        )

    async def _operation(self, run: RunRow, settings: CampaignSettings, request: CallRequest) -> PinnedOperation:
        operation = await self._servers.operation(run.campaign, run.campaign_version, request.server, request.operation)
        if settings.policy.require_exercised and not operation.exercised:
            # It may have been since the campaign's stream last moved.
            operation = replace(operation, exercised=await self._servers.exercised(run.campaign, operation))
        return operation.of(request.arguments)

    async def _check_caller(
        self, run: RunRow, settings: CampaignSettings, caller: Caller, request: CallRequest, remembered: bool = False
    ) -> None:
        if not run.lets_call(caller):
            raise await self._refused(remembered, run.campaign, caller, "call in this run")
        agent = settings.agents.get(caller.sub) if caller.kind == "agent" else None
        if agent is None:
            return
        if agent.operations is not None and f"{request.server}/{request.operation}" not in agent.operations:
            raise await self._refused(remembered, run.campaign, caller, "use this operation")

    async def _principal(
        self, run: RunRow, settings: CampaignSettings, caller: Caller, request: CallRequest, remembered: bool
    ) -> str:
        principal = request.principal or run.principal
        agent = settings.agents.get(caller.sub) if caller.kind == "agent" else None
        if agent is not None and agent.principals is not None and principal not in agent.principals:
            raise await self._refused(remembered, run.campaign, caller, "call for this principal")
        if principal != run.principal:
            if caller.is_human and principal != caller.sub and run.role != "owner":
                raise await self._refused(remembered, run.campaign, caller, "call for somebody else")
            if await self._campaigns.role(run.campaign, principal) is None:
                raise invalid(f"The principal {principal} is not a member of this campaign.")
        return principal

    async def _refused(self, remembered: bool, campaign: str, caller: Caller, what: str) -> Exception:
        """The refusal, kept in the security log once: by what is only remembered nobody is refused."""
        return Outdated() if remembered else await self._campaigns.security.refuse(campaign, caller, what)

    def _check_arguments(self, operation: PinnedOperation, arguments: dict[str, Any]) -> list[Unresolved]:
        validator = self._validators.get(operation.pin)
        if validator is None:
            if len(self._validators) >= _CACHED_VALIDATORS:
                self._validators.clear()
            validator = self._validators[operation.pin] = _validator(operation.input_schema)
        if isinstance(validator, Unresolved):
            return [validator]
        wrong = [
            {"field": ".".join(map(str, error.instance_path)), "reason": error.message}
            for error in validator.iter_errors(arguments)
        ][:20]
        if wrong:
            told = "; ".join(f"{item['field'] or 'arguments'}: {item['reason']}" for item in wrong[:5])
            raise invalid(f"The arguments are not as {operation.name} takes them: {told}.", errors=wrong)
        return []

    async def _kind(self, run: RunRow, operation: PinnedOperation, request: CallRequest) -> EntryKind:
        if request.remedies is not None and request.corrects is not None:
            raise invalid("A call either remedies an entry or corrects one, not both.")
        repaired = request.remedies or request.corrects
        if repaired is None:
            return "read" if operation.declaration.read_only else "call"
        status = await self._pool.fetchval(
            "select status from entries where id = $1 and campaign = $2", repaired, run.campaign
        )
        if status not in _REPAIRABLE:
            raise invalid(f"There is no concluded entry {repaired} in this campaign that could be repaired.")
        if operation.declaration.read_only:
            raise invalid(f"{operation.name} changes nothing, so it repairs nothing.")
        return "remedy" if request.remedies is not None else "correction"

    async def _known_entries(self, campaign: str, wanted: Sequence[str]) -> tuple[list[str], list[Unresolved]]:
        rows = await self._pool.fetch(
            "select id from entries where id = any($1) and campaign = $2", list(wanted), campaign
        )
        known = {row["id"] for row in rows}
        broken = [
            Unresolved(field=f"dependsOn[{index}]", reason=f"there is no entry {entry} in this campaign")
            for index, entry in enumerate(wanted)
            if entry not in known
        ]
        return [entry for entry in wanted if entry in known], broken


def _serial_key(
    run: RunRow, settings: CampaignSettings, operation: PinnedOperation, resources: Resources
) -> str | None:
    if operation.declaration.read_only:
        return None
    return serial_key_of(cast(Serialize, settings.serialize), run.campaign, run.id, resources.changes)


def not_open(status: str) -> Problem:
    """The refusal of a call in a run that is paused or closed."""
    what = "Resume it first." if status == "paused" else "Open a new run."
    return Problem(409, f"run-{status}", f"The run is {status}. Nothing was forwarded. {what}")


def _validator(schema: dict[str, Any]) -> Any:
    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        return Unresolved(field="inputSchema", reason=f"it is no JSON Schema that can be used: {reason}")
