"""One case after another at the real server: call and undo, undo again, and a change by somebody else in between (P4)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from recorder.manifest import expressions
from recorder.manifest.expressions import ExpressionFailed
from recorder.manifest.model import Case, Doing
from recorder.toolport import Operation, Outcome, ToolPort, ToolPortError
from recorder.toolport.port import SelfMade
from takeback.extension import EXTENSION, DeclaredResult, RequestMeta, UndoAnswer, UndoRequest, read_result
from takeback.ids import new_id
from takeback.messages.entry import Effect

Json = dict[str, Any]
Trial = Literal["call", "undo", "twice", "conflict"]
TRIALS: Final[tuple[Trial, ...]] = ("call", "undo", "twice", "conflict")
_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Result:
    """What a case showed: for each trial that was made None where it held, else what was wrong."""

    operation: str
    case: str
    trials: dict[Trial, str | None] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    """What people are told before they approve: losses, side effects, and why there is no way back."""

    @property
    def passed(self) -> bool:
        return bool(self.trials) and all(wrong is None for wrong in self.trials.values())


class _Wrong(Exception):
    """A trial that did not hold."""


class Exercise:
    """The cases of one server, through the *port* that the recorder uses. *manifested*: the operations of its manifest.

    Everything goes to scratch records whose names nobody has used; what a case leaves is removed where it says how.
    """

    def __init__(self, port: ToolPort, operations: Sequence[Operation], manifested: Collection[str]) -> None:
        self._port = port
        self._manifested = manifested
        self._operations = {operation.name: operation for operation in operations}

    async def run(self, case: Case) -> Result:
        """Try *case* twice, each time on records of its own: undone and undone again, then with somebody else's change."""
        result = Result(case.call, case.name)
        told: list[str] = []
        with _noted(result, "call"):
            await self._undone(case, result, told)
        if case.meanwhile and result.passed:
            with _noted(result, "conflict"):
                await self._disturbed(case)
        return Result(case.call, case.name, result.trials, tuple(told))

    async def _undone(self, case: Case, result: Result, told: list[str]) -> None:
        scratch = await self._prepared(case)
        try:
            said = await self._call(case, scratch)
            told += [*said.undo.side_effects, *([said.undo.why] if said.undo.why else [])]
            result.trials["call"] = None
            if case.expect == "none":
                return
            with _noted(result, "undo"):
                answer = await self._undo(case, said)
                if answer.outcome != "reverted":
                    raise _Wrong(f"the undo ended {answer.outcome}: {answer.detail}")
                names = {remap.from_: remap.to for remap in answer.remaps}
                for effect in said.effects:
                    await self._as_before(effect, names)
                result.trials["undo"] = None
            if result.trials.get("undo") is None:
                with _noted(result, "twice"):
                    await self._unchanged(case, said, names)
                    result.trials["twice"] = None
        finally:
            await self._do(case.cleanup, scratch, strict=False)

    async def _unchanged(self, case: Case, said: DeclaredResult, names: Mapping[str, str]) -> None:
        """A second undo changes nothing, whatever it answers."""
        stood = [await self._state(effect, names) for effect in said.effects]
        await self._undo(case, said)
        for effect, state in zip(said.effects, stood, strict=True):
            if await self._state(effect, names) != state:
                raise _Wrong(f"the second undo changed {effect.resource}")

    async def _disturbed(self, case: Case) -> None:
        scratch = await self._prepared(case)
        try:
            said = await self._call(case, scratch)
            await self._do(case.meanwhile, scratch)
            stood = [await self._state(effect, {}) for effect in said.effects]
            answer = await self._undo(case, said)
            if answer.outcome != "conflict":
                raise _Wrong(
                    f"somebody else's change was no conflict: the undo ended {answer.outcome}: {answer.detail}"
                )
            for effect, state in zip(said.effects, stood, strict=True):
                if await self._state(effect, {}) != state:
                    raise _Wrong(f"the undo changed {effect.resource}, which somebody else had changed")
        finally:
            await self._do(case.cleanup, scratch, strict=False)

    # --- the steps ----------------------------------------------------------------------------------------------------

    async def _prepared(self, case: Case) -> Json:
        scratch = {"scratch": "takeback" + new_id("x").removeprefix("x_").lower()[-16:]}
        await self._do(case.prepare, scratch)
        return scratch

    async def _do(self, doings: Sequence[Doing], scratch: Json, *, strict: bool = True) -> None:
        for doing in doings:
            arguments = expressions.fill(doing.arguments, scratch)
            try:
                outcome = await self._send(doing.call, arguments)
            except ToolPortError:
                if strict:
                    raise
                continue
            if outcome.is_error and strict:
                raise _Wrong(f"{doing.call}, which the case makes itself, failed: {str(outcome.result)[:300]}")

    async def _call(self, case: Case, scratch: Json) -> DeclaredResult:
        operation = self._operations.get(case.call)
        if operation is None:
            raise _Wrong(f"the server has no operation {case.call}")
        outcome = await self._send(case.call, expressions.fill(case.arguments, scratch))
        if outcome.is_error:
            raise _Wrong(f"the call failed: {str(outcome.result)[:300]}")
        said = read_result({EXTENSION: outcome.meta}, operation.declaration.undo, datetime.now(UTC))
        said = said.model_copy(update={"effects": [effect for effect in said.effects if effect.resource is not None]})
        found = (
            "none" if said.undo.kind == "none" else "partial" if any(map(_is_loss, said.undo.side_effects)) else "full"
        )
        if said.undo.kind not in ("none", "compensate") or found != case.expect:
            raise _Wrong(f"its way back is {said.undo.kind} ({found}), expected was {case.expect}: {said.undo.why}")
        if case.expect != "none" and not said.effects:
            raise _Wrong("the call says of no record that it changed it, so nothing can be compared")
        return said

    async def _send(self, operation: str, arguments: Json) -> Outcome:
        entry = new_id("ent")
        meta = RequestMeta(entry=entry, idempotency_key=entry)
        return await self._port.call(operation, arguments, meta, deadline=_SECONDS)

    async def _undo(self, case: Case, said: DeclaredResult) -> UndoAnswer:
        """As the recorder does it: held against the versions that the call left."""
        undo, key = said.undo, new_id("ent")
        if undo.compensation_token is None:
            raise _Wrong("the call gave no compensation token")
        if case.call in self._manifested:
            assert isinstance(self._port, SelfMade)
            expected = {str(effect.resource): effect.version for effect in said.effects}
            return await self._port.compensate(
                undo.compensation_token, expected=expected, names={}, force=False, fields=None, resumed=False,
                idempotency_key=key, deadline=_SECONDS,
            )  # fmt: skip
        request = UndoRequest(
            compensation_token=undo.compensation_token,
            if_version=undo.if_version,
            if_versions=undo.if_versions,
            idempotency_key=key,
        )
        return await self._port.undo(request, deadline=_SECONDS)

    async def _state(self, effect: Effect, names: Mapping[str, str]) -> tuple[bool | None, Json]:
        assert effect.resource is not None
        name = names.get(effect.resource, effect.resource)
        seen = await self._port.observe(name, deadline=_SECONDS)
        loose = set(effect.may_change)
        return seen.exists, {key: value for key, value in (seen.fields or {}).items() if key not in loose}

    async def _as_before(self, effect: Effect, names: Mapping[str, str]) -> None:
        exists, fields = await self._state(effect, names)
        before = effect.before
        if before is None:
            if exists:
                raise _Wrong(f"{effect.resource} was not there before the call, and is there after the undo")
            return
        wanted = {key: value for key, value in before.fields.items() if key not in effect.may_change}
        if not exists or fields != wanted:
            raise _Wrong(f"{effect.resource} is not as it was before: {str(fields)[:200]}, and was {str(wanted)[:200]}")


def _is_loss(text: str) -> bool:
    return text.startswith("Not given back: ")


@contextmanager
def _noted(result: Result, trial: Trial) -> Iterator[None]:
    """What is wrong in here is the trial's result; if nothing is, the trial held."""
    try:
        yield
    except (_Wrong, ToolPortError, ExpressionFailed) as wrong:
        result.trials[trial] = str(wrong)
    else:
        result.trials.setdefault(trial, None)
