"""Running a call: once for its idempotency key, with its effect, its token and its answer in one transaction."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import asyncpg
from pydantic_core import to_jsonable_python

from takeback import json
from takeback.extension import EXTENSION, RequestMeta
from takeback.toolserver.call import Call
from takeback.toolserver.effects import effects_of, used_by, with_effects
from takeback.toolserver.errors import KeyForsworn, OperationError, StaleFence
from takeback.toolserver.operation import Operation
from takeback.toolserver.record import Ids, Record, State, Tx
from takeback.toolserver.store import Answered, PostgresStore

_log = logging.getLogger("takeback.toolserver")
Json = dict[str, Any]


class InDoubt(Exception):
    """An effect outside the database was begun under this key, and nobody can say how it ended."""


async def call(store: PostgresStore, operation: Operation, raw: Any, meta: RequestMeta) -> Json:
    """Run *operation* and answer with its MCP result; a second call with the same key gets the first one's answer.

    Raises `InDoubt`, and whatever the database raises: then nothing was changed, or the key will tell.
    """
    try:
        arguments = operation.parse(raw)
        if operation.read_only:
            return await store.transact(lambda tx: _read(tx, operation, arguments, meta))
        work = _Work(store, operation, arguments, meta)
        return await (work.externally() if operation.external else work.once())
    except OperationError as error:
        return refusal(str(error))


def refusal(text: str) -> Json:
    """The MCP result of a tool that refuses."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def answer_of(result: Json, meta: Json) -> Json:
    """The MCP result of a tool that did its work."""
    document = to_jsonable_python(result)
    text = json.dumps(document).decode()
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": document,
        "isError": False,
        "_meta": {EXTENSION: meta},
    }


async def _read(tx: Tx, operation: Operation, arguments: Json, meta: RequestMeta) -> Json:
    said = Call(meta.entry, meta.idempotency_key)
    result = await operation.run(tx, said, arguments)
    effects = effects_of([], used_by(operation, said, arguments, result), said, operation.side_effects)
    for record in operation.records[:1]:
        ids = record.ids_in(arguments, result)
        effects[0]["resource"] = None if ids is None else record.resource_of(ids)
    return answer_of(result, {"undo": {"kind": "none"}, **with_effects(effects)})


class _Work:
    """One call on its way."""

    def __init__(self, store: PostgresStore, operation: Operation, arguments: Json, meta: RequestMeta) -> None:
        self._store = store
        self._operation = operation
        self._arguments = arguments
        self._meta = meta
        self._key = meta.idempotency_key or meta.entry or f"unkeyed-{uuid.uuid4()}"
        self._known = [(record, record.ids_in(arguments)) for record in operation.records]
        self._resources = [record.resource_of(ids) for record, ids in self._known if ids is not None]

    async def once(self) -> Json:
        """Effect, token and answer in one transaction; the tool's own error leaves nothing but its answer."""
        try:
            return await self._store.transact(self._all, locks=self._resources)
        except (StaleFence, KeyForsworn) as error:
            return refusal(str(error))
        except OperationError as error:
            return await self._failed(refusal(str(error)))
        except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.OperatorInterventionError):
            raise  # nobody knows whether it was committed: the key will tell
        except asyncpg.DataError as error:
            return await self._failed(refusal(f"The database cannot take these values: {error}. Nothing was changed."))
        except Exception:
            _log.exception("%s failed and was rolled back", self._operation.name)
            return await self._failed(refusal(f"{self._operation.name} failed inside. Nothing was changed."))

    async def externally(self) -> Json:
        """First the claim, committed, then the effect: after a crash in between the key says `claimed`, not free."""
        try:
            answered = await self._store.transact(self._claim)
            if answered is not None:
                return answered
            return await self._store.transact(self._effect, locks=self._resources, once=True)
        except (StaleFence, KeyForsworn) as error:
            return refusal(str(error))
        except OperationError as error:
            answer = refusal(str(error))
            await self._store.transact(lambda tx: self._store.conclude(tx, self._key, "failed", answer))
            return answer

    async def _all(self, tx: Tx) -> Json:
        answered = await self._claim(tx)
        return answered if answered is not None else await self._effect(tx)

    async def _claim(self, tx: Tx) -> Json | None:
        found = await self._store.claim(tx, self._key, self._operation.name)
        if found is not None:
            return _first_answer(found, self._operation)
        counter = self._meta.serial_key or next(iter(self._resources), None)
        fence = self._meta.fence
        if fence is not None and counter is not None and not await self._store.raise_fence(tx, counter, fence):
            raise StaleFence(f"{self._operation.name} was not run: its fence {fence} is older than one already seen.")
        return None

    async def _effect(self, tx: Tx) -> Json:
        operation, said = self._operation, Call(self._meta.entry, self._key)
        before = [await record.state(tx, ids) if ids is not None else None for record, ids in self._known]
        result = await operation.run(tx, said, self._arguments)
        moves: list[tuple[State | None, State]] = []
        for (record, ids), was in zip(self._known, before, strict=True):
            found = ids if ids is not None else record.ids_in(result)
            if found is not None:
                moves.append((was, await left_by(operation, record, tx, found)))
        uses = used_by(operation, said, self._arguments, result)
        meta: Json = {"undo": await self._undo(tx, moves, result)}
        meta |= with_effects(effects_of(moves, uses, said, operation.side_effects))
        if said.broadcasts:
            meta["broadcasts"] = said.broadcasts
        answer = answer_of(result, meta)
        await self._store.conclude(tx, self._key, "committed", answer)
        return answer

    async def _undo(self, tx: Tx, moves: list[tuple[State | None, State]], result: Json) -> Json:
        operation = self._operation
        if operation.undo_kind != "compensate" or len(moves) < len(operation.records):
            missing = operation.undo_kind == "compensate"
            return (
                {"kind": "unknown", "why": "its result names no record"} if missing else {"kind": operation.undo_kind}
            )
        body = {
            "arguments": to_jsonable_python(self._arguments),
            "result": to_jsonable_python(result),
            "records": [
                {
                    "ids": to_jsonable_python(now.ids),
                    "before": was.fields if was is not None else None,
                    "after": now.fields,
                    "version": now.version,
                }
                for was, now in moves
            ],
        }
        token, undo_by = await self._store.issue(tx, operation.name, body, operation.window)
        return offer(operation, token, undo_by, [now for _, now in moves])

    async def _failed(self, answer: Json) -> Json:
        """Keep the tool's refusal for its key, unless another call with the key has been answered meanwhile."""

        async def keep(tx: Tx) -> Json:
            found = await self._store.claim(tx, self._key, self._operation.name)
            if found is not None:
                return _first_answer(found, self._operation)
            await self._store.conclude(tx, self._key, "failed", answer)
            return answer

        try:
            return await self._store.transact(keep)
        except KeyForsworn as error:
            return refusal(str(error))


async def left_by(operation: Operation, record: Record, tx: Tx, ids: Ids) -> State:
    """The record after the operation, or its reverse, was carried out.

    Raises `InDoubt` where an external system does not show it: that is no refusal, for the effect stands.
    """
    try:
        return await record.state(tx, ids)
    except OperationError as error:
        if not operation.external:
            raise
        told = f"{operation.name} acted on {record.resource_of(ids)}, which cannot be read since: {error}"
        raise InDoubt(told) from error


def offer(operation: Operation, token: str, undo_by: Any, states: list[State]) -> Json:
    """How a call can be taken back, as its result says it."""
    undo: Json = {"kind": "compensate", "via": operation.via, "compensationToken": token}
    if undo_by is not None:
        undo["undoBy"] = to_jsonable_python(undo_by)
    if states:
        undo["ifVersion"] = states[0].version
    if len(states) > 1:
        undo["ifVersions"] = {state.resource: state.version for state in states}
    if operation.undo_authority is not None:
        undo["undoAuthority"] = operation.undo_authority
    if operation.undo_side_effects:
        undo["sideEffects"] = operation.undo_side_effects
    return undo


def _first_answer(found: Answered, operation: Operation) -> Json:
    if found.state == "never":
        raise KeyForsworn(f"{operation.name} was not run: its key was given up when somebody asked what became of it.")
    if found.state == "claimed":
        raise InDoubt(f"an earlier {operation.name} with this key never said how it ended")
    answer: Json = found.answer
    return answer
