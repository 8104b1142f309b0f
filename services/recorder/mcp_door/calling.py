"""Calls, and reads that are like them: from a client's params to the one hook (J1), and from its answer to what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from recorder.answers import JOURNAL_AWAY, Answer, journal_unavailable
from recorder.api.keys import claim_of
from recorder.journal import Idempotency, Unwritable
from recorder.mcp_door.asking import States, Waits, in_problem, without_result
from recorder.mcp_door.continued import Continued
from recorder.mcp_door.shape import Refusal
from recorder.recording import Recording
from takeback.attempt import Attempt
from takeback.auth import Caller
from takeback.errors import Problem, invalid
from takeback.extension import EXTENSION
from takeback.messages.entry import CallRequest
from takeback.web import validate

Json = dict[str, Any]
_OF_THE_CALL: Final = frozenset(
    {"agent", "model", "principal", "interaction", "uses", "dependsOn", "remedies", "corrects", "preview"}
)
"""What a client may say of its call in ``_meta`` under our extension's id, as in `POST /v1/runs/{r}/calls`."""


class UnknownTool(Exception):
    """There is no tool of that name here. Nothing was forwarded."""


class BadState(Exception):
    """The ``requestState`` is not of this call and caller, or has expired. Nothing was forwarded."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that a client wants: where, by whom, and under which key or state."""

    run: str
    caller: Caller
    request: CallRequest
    key: Idempotency | None
    state: Any = None


def wanted(run: str, caller: Caller, server: str, operation: str, params: Json) -> Wanted:
    """The call in the *params* of a ``tools/call``; raises `Problem` 422 for what is not as it should be."""
    arguments = params.get("arguments")
    meta = params.get("_meta")
    part = meta.get(EXTENSION) if isinstance(meta, dict) else None
    said = part if isinstance(part, dict) else {}
    body = {key: value for key, value in said.items() if key in _OF_THE_CALL}
    body |= {"server": server, "operation": operation, "arguments": {} if arguments is None else arguments}
    request = validate(body, CallRequest)
    return Wanted(run, caller, request, _key(run, caller, said.get("idempotencyKey"), body), params.get("requestState"))


class Calling:
    """Makes calls. Nothing is kept between two: any replica serves the retry of any call (J17)."""

    def __init__(self, recording: Recording, continued: Continued, states: States) -> None:
        self._recording = recording
        self._continued = continued
        self._states = states

    async def call(self, made: Wanted) -> Json | Refusal | Waits:
        """The server's result, as it came; or what the client is told instead of one.

        Raises `Problem` 401 and 404, `UnknownTool`, and `BadState` for a ``requestState`` that is not of this call.
        """
        try:
            answer = await self._answer(made)
            entry = answer.document["entry"]
            if answer.status == 202:
                return _waits(answer)
            told: Json | Refusal = without_result(entry) if (result := answer.document["result"]) is None else result
        except Unwritable as error:
            return in_problem(invalid(f"The call holds what the journal cannot keep: {error}"))
        except Problem as problem:
            if problem.status in (401, 404):
                raise
            if problem.slug == "unknown-operation":
                raise UnknownTool(made.request.operation) from problem
            told, entry = in_problem(problem), problem.extra.get("entry")
        if isinstance(entry, dict) and entry.get("approval") is not None:
            await self._continued.fetched(entry["id"])
        return told

    def sealed(self, waits: Waits, made: Wanted) -> str:
        """The ``requestState`` with which the client goes on."""
        return self._states.seal(waits, made.run, made.caller, made.request)

    async def _answer(self, made: Wanted) -> Answer:
        if made.state is None:
            goes_on = partial(self._continued.unfetched, made.run, made.caller, made.request)
            # A key of its own finds its entry.
            return await self._recording.call(
                made.run, made.caller, made.request, made.key, goes_on if made.key is None else None
            )
        entry = self._states.entry(made.state, made.run, made.caller, made.request)
        if entry is None:
            raise BadState("Invalid or expired requestState")
        try:
            return await self._continued.answer(made.run, made.caller, entry)
        except JOURNAL_AWAY as error:
            raise journal_unavailable(error) from error


def _waits(answer: Answer) -> Waits:
    entry = answer.document["entry"]
    approval = answer.document.get("approval") or {"id": entry.get("approval"), "status": "approved"}
    return Waits(entry, approval, answer.document.get("why", ""))


def _key(run: str, caller: Caller, key: Any, body: Json) -> Idempotency | None:
    if key is None:
        return None
    if not isinstance(key, str):
        raise invalid("An idempotencyKey is a text.")
    attempt = Attempt.of(caller, f"/mcp/runs/{run}", key, body)
    return None if attempt is None else claim_of(attempt)
