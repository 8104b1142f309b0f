"""Taking a manifested call back: look, hold against what is expected, make the reverse calls, say what came of it (G8, G9).

An ordinary server keeps no answers, so nothing is ever sent twice: once something was sent, only looking tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from recorder.manifest import expressions, restoring, states, uris, ways
from recorder.manifest.expressions import ExpressionFailed
from recorder.manifest.model import Branch, Manifest, UndoStep
from recorder.manifest.states import Target
from recorder.toolport.looking import Looking, Unreadable
from recorder.toolport.port import NoAnswer, NotSent, ToolPortError, ToolRefused, clause
from takeback import json
from takeback.extension import EXTENSION, Remap, UndoAnswer, UndoOffer, read_result

Json = dict[str, Any]


def token_of(token: str) -> Json:
    """The compensation token that a manifest's port made (`ways.concluded`)."""
    kept: Json = json.loads(token)
    return kept


class _Conflict(Exception):
    """The server refused because somebody else was there first."""


class _Failed(Exception):
    """A step that could not be done."""


class Unwinding:
    """One undo. *names*: under which name a record is known now."""

    def __init__(
        self,
        manifest: Manifest,
        looking: Looking,
        token: Json,
        names: Mapping[str, str],
        fields: list[str] | None,
        *,
        force: bool,
    ) -> None:
        self._manifest = manifest
        self._looking = looking
        self._token = token
        self._fields = fields
        self._force = force
        self._targets = [self._renamed(Target.of(kept), names) for kept in token["records"]]
        self._ways = [(way["record"], Branch.model_validate(way["branch"])) for way in token["ways"]]
        self._key = ""
        self._sent = 0
        self._remaps: list[Remap] = []
        self._told: list[str] = []

    async def looked(self) -> UndoAnswer:
        """What the records show of an undo that may have been sent before. Raises `NoAnswer` where they prove nothing."""
        await self._look()
        for target in self._changed():
            record = self._manifest.records.get(target.record)
            if record is None or not restoring.is_restored(record, target):
                raise NoAnswer(
                    f"The undo may have been sent before, and {target.resource} is not as it was before the call."
                    " This server keeps no answers, so nothing was sent now."
                )
        return UndoAnswer(outcome="already_reverted")

    async def run(self, expected: Mapping[str, str | None], key: str) -> UndoAnswer:
        """Do it, if each record still has its *expected* version. *key* names the reversal.

        Raises `NotSent` and `NoAnswer` as any undo does.
        """
        self._key = key
        await self._look()
        moved = self._moved(expected)
        if moved is not None:
            return UndoAnswer(outcome="conflict", detail=f"{moved} Nothing was changed.")
        try:
            for number, branch in self._in_order():
                await self._walk(number, branch)
        except _Conflict as conflict:
            if self._sent == 0:
                return UndoAnswer(outcome="conflict", detail=f"{conflict} Nothing was changed.")
            return UndoAnswer(outcome="failed", detail=f"{conflict} {self._sent} earlier steps were done.")
        except (_Failed, ExpressionFailed, Unreadable) as failed:
            done = "Nothing was changed." if self._sent == 0 else f"{self._sent} steps were done before."
            return UndoAnswer(outcome="failed", detail=f"{clause(failed)}. {done}")
        return await self._verified()

    async def _look(self) -> None:
        try:
            self._targets = [
                replace(target, now=await self._looking.record(target.record, target.keys)) for target in self._targets
            ]
        except Unreadable as error:
            raise NotSent(f"The records could not be read: {error}. Nothing was sent.") from error

    def _moved(self, expected: Mapping[str, str | None]) -> str | None:
        for target in self._changed():
            if target.resource in expected and target.now is not None:
                wanted = expected[target.resource]
                if wanted is not None and target.now.version != wanted:
                    return f"{target.resource} stands at version {target.now.version}, expected was {wanted}."
        return None

    def _changed(self) -> list[Target]:
        changed = [target for target in self._targets if target.changed]
        return changed or self._targets[:1]

    def _in_order(self) -> list[tuple[int | None, Branch]]:
        """Change by change as the manifest lists them, and the records of one change last first."""

        def place(way: tuple[int | None, Branch]) -> tuple[int, int]:
            number = way[0]
            return (-1, 0) if number is None else (self._targets[number].change, -number)

        return sorted(self._ways, key=place)

    async def _walk(self, number: int | None, branch: Branch) -> None:
        at = 0 if number is None else number
        target = self._targets[at] if at < len(self._targets) else None
        scope = self._scope(target)
        if self._fields is not None and "wanted" not in _names(branch):
            raise _Failed("This way back restores the whole record: single fields cannot be picked")
        steps: Json = {}
        for step in branch.steps:
            found = await self._step(step, {**scope, "steps": steps})
            if step.id is not None:
                steps[step.id] = found
        for place, other in enumerate(self._targets):
            if other.name in branch.becomes and (number is None or number == place):
                here = {**scope, **states.target_scope(other), "steps": steps}
                self._rename(place, expressions.fill(branch.becomes[other.name], here))
        self._told += [expressions.fill_text(text, {**scope, "steps": steps}, expressions.plain_text)
                       for text in branch.side_effects]  # fmt: skip

    def _rename(self, place: int, filled: Json) -> None:
        """The record was made again under other keys."""
        target = self._targets[place]
        keys = {name: expressions.plain_text(value, f"becomes.{name}") for name, value in filled.items()}
        uri = uris.expand(self._manifest.records[target.record].uri, keys)
        if uri != target.resource:
            self._remaps.append(Remap(from_=target.resource, to=uri))
            self._targets[place] = replace(target, keys=keys, resource=uri)

    async def _step(self, step: UndoStep, scope: Json) -> Any:
        if step.each is None:
            return await self._once(step, scope)
        items = expressions.evaluate(step.each, scope)
        if not isinstance(items, list):
            raise ExpressionFailed(step.each, "`each` goes over a list")
        return [await self._once(step, {**scope, "item": item}) for item in items]

    async def _once(self, step: UndoStep, scope: Json) -> Any:
        if step.reads:
            self._looking.afresh()
            seen = (await self._looking.look(step, scope))[1]
            if expressions.holds(step.conflict, {**scope, "result": seen}):
                raise _Conflict(f"{step.call} shows that somebody changed it meanwhile.")
            return seen
        if not expressions.holds(step.when, scope):
            return None
        arguments = expressions.fill(step.arguments, scope)
        try:
            answer = await self._looking.call(step, arguments, f"{self._key}.{self._sent + 1}")
        except NotSent as error:
            if self._sent == 0:
                raise
            raise _Failed(f"{step.call} could not be sent: {error}") from error
        except ToolRefused as error:
            raise _Failed(f"{step.call} was refused: {error}") from error
        except ToolPortError as error:
            raise NoAnswer(f"{step.call} gave no answer: {error}") from error
        here = {**scope, "result": answer}
        self._sent += 1
        if expressions.holds(step.conflict, here):
            self._sent -= 1
            raise _Conflict(f"{step.call} found that somebody changed it meanwhile: {answer['text'][:200]}")
        if expressions.holds(step.fails, here):
            self._sent -= 1
            raise _Failed(f"{step.call} answered: {answer['text'][:300] or 'an error'}")
        return answer if step.value is None else expressions.evaluate(step.value, here)

    async def _verified(self) -> UndoAnswer:
        """The recorder looks for itself; only what it cannot tell, amounts taken back by difference, is looked at here."""
        for target in self._targets:
            record = self._manifest.records.get(target.record)
            if record is None or not record.relative:
                continue
            self._looking.afresh()
            try:
                then = await self._looking.record(target.record, target.keys)
                missed = restoring.difference_missed(record, target, then)
            except Unreadable as error:
                missed = str(error)
            if missed is not None:
                raise NoAnswer(f"The undo was sent, and {target.resource} does not show it: {missed}.")
        answer = UndoAnswer(outcome="reverted", remaps=self._remaps, side_effects=self._told)
        return answer.model_copy(update={"undo": await self._redo()})

    async def _redo(self) -> UndoOffer | None:
        """The way from here back to the state before this undo, where the manifest says that there is one (S12)."""
        name = self._token["operation"]
        operation = self._manifest.operations.get(name)
        if operation is None or not operation.redo:
            return None
        self._looking.afresh()
        kept: Json = {part: self._token[part] for part in ("arguments", "reads", "result") if part in self._token}
        try:
            targets = [
                replace(
                    target, before=target.now, after=await self._looking.record(target.record, target.keys), now=None
                )
                for target in self._targets
            ]
            scope: Json = {"reads": {}, **kept, "records": states.records_in(operation, targets)}
            meta = ways.concluded(self._manifest, self._token["manifest"], name, targets, scope, [])
        except (ExpressionFailed, Unreadable):
            return None  # the undo is done all the same; there is no way forth that is known
        return read_result({EXTENSION: meta}, ways.template_of(operation), datetime.now(UTC)).undo

    def _scope(self, target: Target | None) -> Json:
        operation = self._manifest.operations.get(self._token["operation"])
        records = states.records_in(operation, self._targets) if operation is not None else {}
        scope: Json = {
            "arguments": self._token.get("arguments"),
            "reads": self._token.get("reads"),
            "result": self._token.get("result"),
            "records": records,
            "fields": self._fields,
        }
        if target is not None:
            scope |= states.target_scope(target)
            scope["wanted"] = restoring.wanted_fields(target, self._fields, force=self._force)
        return scope

    def _renamed(self, target: Target, names: Mapping[str, str]) -> Target:
        name = names.get(target.resource)
        found = None if name is None else states.record_named(self._manifest, name)
        return target if name is None or found is None else replace(target, resource=name, keys=found[1])


def _names(branch: Branch) -> set[str]:
    sources = [
        source
        for step in branch.steps
        for source in [step.when, step.each or "true", *expressions.expressions_in(step.arguments)]
    ]
    return {name for source in sources for name in expressions.names_in(source)}
