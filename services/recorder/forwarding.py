"""Forwarding: one question to the tool server, and what its answer, or the lack of one, says of the call (J2, J7)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from recorder import failpoints, intake
from recorder.intake import Intake, Snapshot
from recorder.journal.unit import MAX_VALUE_BYTES
from recorder.prepared import Prepared, ReadRecord
from recorder.resolving import Call
from recorder.toolport.port import NoAnswer, NotSent, Outcome, SelfMade, ToolPort, ToolPortError, ToolRefused
from takeback import json
from takeback.errors import Problem, words_of
from takeback.extension import EXTENSION, Observation, RequestMeta
from takeback.messages.entry import Unresolved

_MOST: Final = f"the journal keeps {MAX_VALUE_BYTES:,} at most"


class Forwarded(NamedTuple):
    """What became of the call. *detail* is for the caller; *tool_seconds* is the time that was the tool's own.

    *too_large*: the result is for the caller alone, and not for the journal.
    """

    step: Literal["commit", "fail", "doubt"]
    result: Any
    intake: Intake
    detail: str = ""
    tool_seconds: float = 0.0
    too_large: bool = False


async def snapshot_of(call: Call, port: ToolPort, deadline: float) -> Snapshot | None:
    """The state of the record that *call* is about to change (J2), or why it cannot be read (J4).

    None where there is no record to read, or where the tool server keeps the state before in its own transaction.
    """
    declared, resource = call.operation.declaration, call.resources.changes
    if call.operation.manifest is not None and isinstance(port, SelfMade):
        prepared = await port.prepare(call.operation.name, call.request.arguments, deadline=deadline)
        return _of_prepared(resource, prepared)
    if resource is None or declared.carries_before:
        return None
    if not call.operation.can_observe:
        missing = "its tool server has no way to be asked for the state of a record"
        return Snapshot(resource, failure=missing) if declared.undo.kind == "compensate" else None
    return await observed(resource, port, deadline)


async def before_asking(call: Call, port: ToolPort, deadline: float) -> Snapshot | None:
    """The record of *call*, which has one, as whoever is asked about the call sees it."""
    if call.operation.manifest is not None and isinstance(port, SelfMade):
        return await snapshot_of(call, port, deadline)
    return await observed(call.resources.changes or "", port, deadline)


def foreseen(call: Call, snapshot: Snapshot | None) -> Call:
    """*call* with its undo (J4, J8) and all the records that it changes (J7, J19), as the state before it tells."""
    prepared = snapshot.prepared if snapshot is not None else None
    if prepared is None:
        return call
    resources = call.resources.beside(record.resource for record in prepared.records)
    if resources is not call.resources:
        call = call._replace(resources=resources)
    return call if prepared.failure is not None else call.with_undo(prepared.undo)


def _of_prepared(resource: str | None, prepared: Prepared) -> Snapshot | None:
    """The snapshot in what a port read that makes the way back itself."""
    records, failure = list(prepared.records), prepared.failure
    for record in records:
        if failure is None and record.seen is not None:
            _, wrong = _keepable([record.seen.fields, prepared.reads])
            failure = None if wrong is None else f"{record.resource}: {wrong}"
    if not records:
        if failure is None and not prepared.reads and prepared.kept is None:
            return None
        return Snapshot(resource or "", failure=failure, prepared=replace(prepared, failure=failure))
    if failure is not None:
        named = [ReadRecord(record.resource, failure=record.failure or failure) for record in records]
        prepared = replace(prepared, records=named, reads={}, failure=failure)
        return Snapshot(records[0].resource, failure=failure, prepared=prepared)
    return Snapshot(records[0].resource, records[0].seen, prepared=prepared)


async def observed(resource: str, port: ToolPort, deadline: float) -> Snapshot:
    """The state of *resource* as the tool server tells it, or why it does not."""
    try:
        seen = await port.observe(resource, deadline=deadline)
    except ToolPortError as error:
        return Snapshot(resource, failure=words_of(error))
    if seen.exists is None:
        reasons = "; ".join(f"{item.field}: {item.reason}" for item in seen.unresolved)
        return Snapshot(resource, failure=reasons or "the tool server does not say whether the record exists")
    kept, wrong = _keepable(seen.fields)
    if wrong is not None:
        return Snapshot(resource, failure=wrong)
    return Snapshot(resource, Observation(exists=seen.exists, version=seen.version, fields=kept))


async def forward(
    call: Call,
    port: ToolPort,
    snapshot: Snapshot | None,
    *,
    fence: int | None,
    deadline: float,
    intended_at: datetime | None,
    clock: Clock,
) -> Forwarded:
    """Asks the tool to run *call* once; never raises for what the tool server does or says."""
    began = time.perf_counter()
    try:
        outcome = await _ask(call, port, snapshot, fence, deadline)
    except NotSent as error:
        return _failed(call, began, f"The request never reached the tool server: {error}")
    except ToolRefused as error:
        return _failed(call, began, f"The tool server refused the request: {error}")
    except NoAnswer as error:
        return _unknown(call, began, f"The tool server gave no usable answer: {error}")
    except ToolPortError as error:
        return _unknown(call, began, f"The tool server could not be heard: {error}")
    failpoints.reach("after-effect")
    result, meta, broken, too_large = _kept(outcome)
    if outcome.is_error:
        taken = intake.failed(call.operation.declaration, call.resources)
        return Forwarded("fail", result, _with(taken, broken), _told(result), time.perf_counter() - began, too_large)
    after = None
    if intake.wants_observation(meta, call.operation.declaration, snapshot):
        assert snapshot is not None
        after = (await observed(snapshot.resource, port, deadline)).seen
    tool_seconds = time.perf_counter() - began
    at = clock.since(intended_at)
    taken = intake.committed(meta, call.operation.declaration, call.resources, snapshot, after, at)
    return Forwarded("commit", result, _with(taken, broken), "", tool_seconds, too_large)


def not_sent(call: Call, why: str) -> Forwarded:
    """What becomes of a call that was held back after its intent: it failed, and nothing happened."""
    return Forwarded("fail", None, intake.failed(call.operation.declaration, call.resources), why)


class Clock:
    """The database's clock, carried on by this process's monotonic one from the last instant that was heard."""

    def __init__(self) -> None:
        self._heard: tuple[datetime, float] | None = None

    def heard(self, at: datetime) -> None:
        """*at* is the time of a record that was written just now."""
        self._heard = (at, time.monotonic())

    def since(self, at: datetime | None) -> datetime:
        """Now, not before *at*."""
        if self._heard is None:
            return at or datetime.now(UTC)
        instant, monotonic = self._heard
        now = instant + timedelta(seconds=time.monotonic() - monotonic)
        return max(now, at) if at is not None else now


def result_without_declaration(result: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's result without its declaration: the token in it is the recorder's alone."""
    meta = result.get("_meta")
    kept = {key: value for key, value in result.items() if key != "_meta"}
    if isinstance(meta, Mapping) and (others := {key: value for key, value in meta.items() if key != EXTENSION}):
        kept["_meta"] = others
    return kept


async def _ask(call: Call, port: ToolPort, snapshot: Snapshot | None, fence: int | None, deadline: float) -> Outcome:
    meta = RequestMeta(entry=call.entry, idempotency_key=call.entry, fence=fence, serial_key=call.serial_key)
    prepared = snapshot.prepared if snapshot is not None else None
    if prepared is not None and isinstance(port, SelfMade):
        return await port.call_prepared(prepared, call.operation.name, call.request.arguments, meta, deadline=deadline)
    return await port.call(call.operation.name, call.request.arguments, meta, deadline=deadline)


def _failed(call: Call, began: float, detail: str) -> Forwarded:
    taken = intake.failed(call.operation.declaration, call.resources)
    return Forwarded("fail", None, taken, detail, time.perf_counter() - began)


def _unknown(call: Call, began: float, detail: str) -> Forwarded:
    taken = Intake(
        undo=intake.expected_undo(call.operation.declaration), touched=intake.expected_touched(call.resources)
    )
    return Forwarded("doubt", None, taken, detail, time.perf_counter() - began)


def _with(taken: Intake, broken: list[Unresolved]) -> Intake:
    if not broken:
        return taken
    return Intake(taken.effects, taken.undo, taken.broadcasts, [*taken.unresolved, *broken], taken.touched)


def _kept(outcome: Outcome) -> tuple[Any, Any, list[Unresolved], bool]:
    """The result and its declaration, what is wrong with them, and whether the result is too large for the journal."""
    result: Any = result_without_declaration(outcome.result)
    meta = outcome.meta
    # One look at both; which of them is off is told where one is.
    if _keepable(result if meta is None else [result, meta])[1] is None:
        return result, meta, [], False
    size, wrong = _size(result)
    too_large = size > MAX_VALUE_BYTES
    if too_large:
        wrong = f"it has {size:,} bytes, and was passed on; {_MOST}"
    elif wrong is not None:
        result = None
    broken = [] if wrong is None else [Unresolved(field="result", reason=wrong)]
    if not outcome.is_error:
        meta, wrong = _keepable(meta)
        broken += [] if wrong is None else [Unresolved(field="result._meta", reason=wrong)]
    return result, meta, broken, too_large


def _keepable(value: Any) -> tuple[Any, str | None]:
    """*value*, or None and why the journal cannot keep it."""
    size, wrong = _size(value)
    if size > MAX_VALUE_BYTES:
        wrong = f"it has {size:,} bytes; {_MOST}"
    return (value, None) if wrong is None else (None, wrong)


def _size(value: Any) -> tuple[int, str | None]:
    """How many bytes of JSON *value* is; 0 and why for what is none."""
    try:
        return json.check(value), None
    except Problem as error:
        return 0, error.detail.removesuffix(" Nothing was changed.")


def _told(result: Any) -> str:
    """The tool's own words, from what can be kept of its *result*."""
    error = result.get("error") if isinstance(result, Mapping) else None
    if isinstance(error, Mapping) and isinstance(error.get("message"), str):
        return f"The tool server answered with an error: {error['message'][:500]}"
    content = result.get("content") if isinstance(result, Mapping) else None
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            return f"The tool answered with an error: {part['text'][:500]}"
    return "The tool answered with an error."
