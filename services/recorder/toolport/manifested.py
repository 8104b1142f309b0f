"""An ordinary tool server behind its manifest: the same port as that of a server which declares its undo itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

from recorder.manifest import expressions, restoring, states, ways
from recorder.manifest.checking import Checked, steps_of
from recorder.manifest.expressions import ExpressionFailed
from recorder.manifest.model import Manifest
from recorder.manifest.model import Operation as Manifested
from recorder.manifest.states import ABSENT, State, Target
from recorder.prepared import Prepared, ReadRecord
from recorder.toolport import offers
from recorder.toolport.hearing import Changing, Kind
from recorder.toolport.looking import Looking, Unreadable, view_of
from recorder.toolport.port import (
    OWN,
    Description,
    NoAnswer,
    Offering,
    Operation,
    Outcome,
    Preview,
    ToolPort,
    Unsupported,
    clause,
    pin_of,
)
from recorder.toolport.unwinding import Unwinding, token_of
from takeback.extension import (
    EXTENSION,
    Observation,
    RequestMeta,
    UndoAnswer,
    UndoRequest,
    UndoTemplate,
    read_definition,
    read_effects,
)

Json = dict[str, Any]
Reach = Callable[[str], Awaitable[ToolPort]]
"""The port to another tool server of the campaign, for a way back that leads over it."""

_UNCLEAR: Final = "it was not clear from the answer what happened"


class ManifestPort:
    """A `ToolPort` (and `SelfMade`) that reads records before and after each call and takes calls back by reverse calls."""

    def __init__(self, inner: ToolPort, checked: Checked, reach: Reach) -> None:
        self._inner = inner
        self._manifest = checked.manifest
        self._hash = checked.hash
        self._reach = reach

    async def ask(self, method: str, params: Json, *, deadline: float) -> Json:
        """See `port.Offering`."""
        if not isinstance(self._inner, Offering):
            raise Unsupported(f"The tool server offers nothing beside its tools; {method} was not sent.")
        return await self._inner.ask(method, params, deadline=deadline)

    def changes(self, tell: Callable[[Kind], None]) -> AbstractContextManager[None]:
        """See `hearing.Changing`."""
        return self._inner.changes(tell) if isinstance(self._inner, Changing) else nullcontext()

    # --- describe ---------------------------------------------------------------------------------------------------------

    async def describe(self, *, deadline: float) -> Description:
        described = await self._inner.describe(deadline=deadline)
        found = {operation.name: operation for operation in described.operations}
        return replace(
            described,
            operations=[
                self._declared(operation, found) if operation.name in self._manifest.operations else operation
                for operation in described.operations
                if not self._hidden(operation.name)
            ],
            undo_tool=described.undo_tool or OWN,
            observe_tool=described.observe_tool or OWN,
            preview_tool=described.preview_tool or OWN,
            tools=offers.tools_of(described),
        )

    def _hidden(self, name: str) -> bool:
        operation = self._manifest.operations.get(name)
        return operation is not None and operation.hidden

    def _declared(self, operation: Operation, found: Mapping[str, Operation]) -> Operation:
        """*operation* with what its manifest declares, pinned with the manifest and with the tools that its undo needs."""
        tools = {
            name: found[name].pin if name in found else None
            for name in sorted(steps_of(self._manifest, operation.name))
        }
        part = {
            **declaration_of(self._manifest, operation.name),
            "manifest": {"hash": self._hash, "tools": tools},
        }
        meta = {**(operation.definition.get("_meta") or {}), EXTENSION: part}
        definition = {**operation.definition, "_meta": meta}
        return replace(
            operation,
            declaration=read_definition(definition["_meta"]),
            definition=definition,
            pin=pin_of(definition),
        )

    # --- call -------------------------------------------------------------------------------------------------------------

    async def prepare(self, operation: str, arguments: Json, *, deadline: float) -> Prepared:
        wanted = self._manifest.operations.get(operation)
        if wanted is None:
            return Prepared([], UndoTemplate(), {}, None)
        looking = Looking(self._manifest, self._inner, self._reach, deadline)
        targets: list[Target] = []
        reads: Json = {}
        template = ways.template_of(wanted)
        try:
            for step in wanted.before:
                scope = {"arguments": arguments, "reads": reads}
                _, reads[step.id or ""] = await looking.look(step, scope)
            for index, change in enumerate(wanted.changes):
                if change.new:
                    continue
                scope = self._scope(wanted, arguments, reads, targets)
                named = states.targets_of(self._manifest, wanted, index, scope)
                targets += await asyncio.gather(*(self._seen(looking, target, "before") for target in named))
            undo = ways.foreseen(wanted, targets, self._scope(wanted, arguments, reads, targets))
        except (ExpressionFailed, Unreadable) as error:
            # What names a record that could not be read fails with it: told is why it could not.
            return Prepared(_records(targets), template, reads, None, _unread(targets) or str(error))
        failure = _unread(targets)
        return Prepared(_records(targets), template if failure else undo, reads, targets, failure)

    async def call(self, operation: str, arguments: Json, meta: RequestMeta, *, deadline: float) -> Outcome:
        wanted = self._manifest.operations.get(operation)
        if wanted is not None and not states.reads_only(wanted, arguments):
            prepared = await self.prepare(operation, arguments, deadline=deadline)
            return await self.call_prepared(prepared, operation, arguments, meta, deadline=deadline)
        outcome = await self._inner.call(operation, arguments, meta, deadline=deadline)
        return outcome if wanted is None else self._read(wanted, arguments, outcome)

    async def call_prepared(
        self, prepared: Prepared, operation: str, arguments: Json, meta: RequestMeta, *, deadline: float
    ) -> Outcome:
        ends = asyncio.get_running_loop().time() + deadline
        outcome = await self._inner.call(operation, arguments, meta, deadline=deadline)
        wanted = self._manifest.operations.get(operation)
        if wanted is None:
            return outcome
        left = max(ends - asyncio.get_running_loop().time(), 0.5)
        return await self._concluded(wanted, operation, arguments, prepared, outcome, left)

    async def _concluded(
        self, wanted: Manifested, name: str, arguments: Json, prepared: Prepared, outcome: Outcome, deadline: float
    ) -> Outcome:
        """What *outcome* and the records after it say. Raises `NoAnswer` where the one contradicts the other."""
        view = view_of(outcome.result)
        before: list[Target] = list(prepared.kept or [])
        scope = self._scope(wanted, arguments, prepared.reads, before) | {"result": view}
        unclear: str | None = None
        failed, nothing = view["isError"] is True, False
        try:
            failed = expressions.holds(wanted.fails, scope)
            nothing = not failed and expressions.holds(wanted.nothing, scope)
        except ExpressionFailed as error:
            unclear = f"{_UNCLEAR}: {error}"
        targets: list[Target] = before
        reads: Json = dict(prepared.reads)
        looking = Looking(self._manifest, self._inner, self._reach, deadline)
        try:
            for step in [] if failed or nothing or unclear else wanted.after:
                _, reads[step.id or ""] = await looking.look(step, {**scope, "reads": reads})
            scope["reads"] = reads
            targets = await self._after(looking, wanted, before, scope, new=not failed and not nothing)
        except (ExpressionFailed, Unreadable) as error:
            unclear = unclear or str(error)
        moved = [target.resource for target in targets if target.failure is None and target.changed]
        if (failed or nothing) and moved:
            said = "failed" if failed else "did nothing"
            raise NoAnswer(
                f"{name} says that it {said}, and {moved[0]} is no longer as it was. What happened is not known."
            )
        if failed:
            return Outcome(outcome.result, None, True)
        if prepared.failure is not None:
            unclear = unclear or f"the state before the call could not be read: {prepared.failure}"
        if unclear is None:
            try:
                scope = self._scope(wanted, arguments, reads, targets) | {"result": view}
                uses = self._uses(wanted, scope)
                if nothing and not targets:
                    meta: Json = {"undo": {"kind": "none", "why": "it changed nothing"}}
                else:
                    meta = ways.concluded(self._manifest, self._hash, name, targets, scope, uses)
                return Outcome(outcome.result, meta, False)
            except ExpressionFailed as error:
                unclear = str(error)
        return Outcome(outcome.result, {"undo": {"kind": "unknown", "via": wanted.via, "why": unclear}}, False)

    async def _after(
        self, looking: Looking, wanted: Manifested, before: list[Target], scope: Json, *, new: bool
    ) -> list[Target]:
        seen = list(await asyncio.gather(*(self._seen(looking, target, "after") for target in before)))
        if not new:
            return seen
        for index, change in enumerate(wanted.changes):
            if change.new:
                here = scope | {"records": states.records_in(wanted, seen)}
                made = [
                    replace(target, before=ABSENT) for target in states.targets_of(self._manifest, wanted, index, here)
                ]
                seen += await asyncio.gather(*(self._seen(looking, target, "after") for target in made))
        return sorted(seen, key=lambda target: target.change)

    def _read(self, wanted: Manifested, arguments: Json, outcome: Outcome) -> Outcome:
        view = view_of(outcome.result)
        scope = {"arguments": arguments, "result": view}
        try:
            if expressions.holds(wanted.fails, {**scope, "reads": {}, "records": {}}):
                return Outcome(outcome.result, None, True)
            uses = self._uses(wanted, scope)
        except ExpressionFailed:
            return outcome
        return Outcome(outcome.result, {"effects": [{"uses": uses}]} if uses else None, False)

    def _uses(self, wanted: Manifested, scope: Mapping[str, Any]) -> list[str]:
        return list(dict.fromkeys(uri for use in wanted.uses for uri, _, _ in states.named(self._manifest, use, scope)))

    async def _seen(self, looking: Looking, target: Target, when: str) -> Target:
        if target.failure is not None:
            return target
        try:
            state: State = await looking.record(target.record, target.keys)
        except Unreadable as error:
            return replace(target, failure=str(error))
        return replace(target, before=state) if when == "before" else replace(target, after=state)

    def _scope(self, wanted: Manifested, arguments: Json, reads: Json, targets: list[Target]) -> Json:
        return {"arguments": arguments, "reads": reads, "records": states.records_in(wanted, targets)}

    # --- preview, observe, undo -------------------------------------------------------------------------------------------

    async def preview(self, operation: str, arguments: Json, *, deadline: float) -> Preview:
        wanted = self._manifest.operations.get(operation)
        if wanted is None or not wanted.foretells:
            return await self._inner.preview(operation, arguments, deadline=deadline)
        prepared = await self.prepare(operation, arguments, deadline=deadline)
        if prepared.failure is not None:
            raise Unreadable(f"{clause(prepared.failure)}. Nothing was sent.")
        scope = self._scope(wanted, arguments, prepared.reads, prepared.kept)
        try:
            left = restoring.foretold(wanted, prepared.kept, scope) or []
        except ExpressionFailed as error:
            raise Unreadable(f"{error}. Nothing was sent.") from error
        effects, unresolved = read_effects({"effects": ways.effects_of(self._manifest, wanted, left)})
        return Preview(effects, unresolved)

    async def look_up(
        self, operation: str, arguments: Json, before: Mapping[str, Any], *, deadline: float
    ) -> Outcome | None:
        wanted = self._manifest.operations.get(operation)
        if wanted is None or not wanted.foretells:
            return None
        known = {state["resource"]: state for state in [before, *(before.get("others") or [])]}
        reads = before.get("reads") or {}
        targets: list[Target] = []
        looking = Looking(self._manifest, self._inner, self._reach, deadline)
        try:
            for index in range(len(wanted.changes)):
                scope = self._scope(wanted, arguments, reads, targets)
                targets += states.targets_of(self._manifest, wanted, index, scope)
                targets = [_with_before(target, known) for target in targets]
            scope = self._scope(wanted, arguments, reads, targets)
            left = restoring.foretold(wanted, targets, scope)
            now = [await self._seen(looking, target, "after") for target in targets]
            if not left or not all(map(restoring.is_left_as, left, now)):
                return None
            scope = self._scope(wanted, arguments, reads, now)
            meta = ways.concluded(self._manifest, self._hash, operation, now, scope, [])
        except (ExpressionFailed, Unknowable):
            return None
        return Outcome({}, meta, False)

    async def observe(self, resource: str | None, *, entry: str | None = None, deadline: float) -> Observation:
        named = None if resource is None else states.record_named(self._manifest, resource)
        if named is None:
            return await self._inner.observe(resource, entry=entry, deadline=deadline)
        state = await Looking(self._manifest, self._inner, self._reach, deadline).record(*named)
        return observation_of(state)

    async def undo(self, request: UndoRequest, *, deadline: float) -> UndoAnswer:
        # A token of the server's own: those that this port made are `compensate`'s.
        return await self._inner.undo(request, deadline=deadline)

    async def compensate(
        self,
        token: str,
        *,
        expected: Mapping[str, str | None],
        names: Mapping[str, str],
        force: bool,
        fields: list[str] | None,
        resumed: bool,
        idempotency_key: str,
        deadline: float,
    ) -> UndoAnswer:
        kept = token_of(token)
        looking = Looking(self._manifest, self._inner, self._reach, deadline)
        unwinding = Unwinding(self._manifest, looking, kept, names, fields, force=force)
        return await (unwinding.looked() if resumed else unwinding.run(expected, idempotency_key))

    async def close(self) -> None:
        await self._inner.close()


def declaration_of(manifest: Manifest, name: str) -> Json:
    """What the manifest declares of the operation, as a server would (contract.md)."""
    operation = manifest.operations[name]
    template = ways.template_of(operation)
    first = operation.changes[0].record if operation.changes else None
    declared: Json = {
        "tier": operation.tier,
        "readOnly": operation.only_reads,
        "versioned": bool(operation.changes),
        "resource": manifest.records[first].uri if first is not None else None,
        "undo": template.model_dump(mode="json", by_alias=True, exclude_none=True),
        "money": None if operation.money is None else operation.money.model_dump(),
        "secret": list(operation.secret),
    }
    return {key: value for key, value in declared.items() if value is not None}


def observation_of(state: State) -> Observation:
    """The state as the port tells it."""
    return Observation(exists=state.exists, version=state.version, fields=state.fields)


class Unknowable(Exception):
    """The journal does not hold the state of a record before the call."""


def _with_before(target: Target, states: Mapping[str, Mapping[str, Any]]) -> Target:
    kept = states.get(target.resource)
    if kept is None or "failure" in kept:
        raise Unknowable(target.resource)
    return replace(target, before=State(kept["exists"], kept["version"], kept["fields"], kept.get("why")))


def _unread(targets: list[Target]) -> str | None:
    return next((f"{target.resource}: {target.failure}" for target in targets if target.failure is not None), None)


def _records(targets: list[Target]) -> list[ReadRecord]:
    return [
        ReadRecord(
            target.resource,
            None if target.before is None else observation_of(target.before),
            target.failure,
            None if target.before is None else target.before.why,
        )
        for target in targets
    ]
