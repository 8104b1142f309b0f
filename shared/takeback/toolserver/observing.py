"""Looking without touching: a record as it is, what became of a key, what a call would do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg

from takeback.extension import EXTENSION, ObserveRequest
from takeback.toolserver.call import Call
from takeback.toolserver.calling import Json
from takeback.toolserver.effects import effects_of, foretold, used_by, with_effects
from takeback.toolserver.errors import UnknownTool
from takeback.toolserver.operation import Operation
from takeback.toolserver.record import Record, State, Tx
from takeback.toolserver.store import PostgresStore

_WAIT_FOR_KEY = "2s"
"""How long an observer waits for a call that is still running before it hears `unknown`."""


class _TakenBack(Exception):
    """Carries a preview's finding out of the transaction that is rolled back."""

    def __init__(self, finding: Any) -> None:
        self.finding = finding


async def observe(store: PostgresStore, records: Iterable[Record], request: ObserveRequest) -> Json:
    """The record and the call that were asked for.

    A key that no call ever used is given up: a call that comes later with it is refused. Raises `UnknownTool` for a
    resource that is none of this server's.
    """
    answer: Json = {"exists": None, "version": None, "fields": None}
    if request.entry is not None:
        # Before the record: what is seen of it afterwards includes what the call did.
        answer["call"] = await _call(store, request.entry)
    if request.resource is not None:
        state = await _rolled_back(store, lambda tx: _state(tx, records, str(request.resource)))
        answer |= {"exists": state.exists, "version": state.version, "fields": state.fields}
    return answer


async def preview(store: PostgresStore, operation: Operation, raw: Any) -> Json:
    """The effect that a call would have, from a run that is rolled back.

    An operation with an effect outside the database is not run: its own dry run speaks, else its arguments.
    """
    arguments, said = operation.parse(raw), Call()

    async def run(tx: Tx) -> Json:
        fields = await operation.foretell(tx, said, arguments)
        if fields is None and operation.external:
            fields = operation.shown(arguments)
        known = [(record, record.ids_in(arguments)) for record in operation.records]
        before = [await record.state(tx, ids) if ids is not None else None for record, ids in known]
        if fields is not None:
            effects = effects_of(
                [(was, was) for was in before if was], used_by(operation, said, arguments), said, operation.side_effects
            )
            effects[0]["changes"] = foretold(fields)
            return with_effects(effects)
        result = await operation.run(tx, said, arguments)
        moves: list[tuple[State | None, State]] = []
        for (record, ids), was in zip(known, before, strict=True):
            found = ids if ids is not None else record.ids_in(result)
            if found is not None:
                moves.append((was, await record.state(tx, found)))
        uses = used_by(operation, said, arguments, result)
        return with_effects(effects_of(moves, uses, said, operation.side_effects))

    finding: Json = await _rolled_back(store, run)
    return finding


async def _state(tx: Tx, records: Iterable[Record], resource: str) -> State:
    for record in records:
        ids = record.match(resource)
        if ids is not None:
            return await record.state(tx, ids, lock=False)
    raise UnknownTool(f"{resource} is no record of this server")


async def _call(store: PostgresStore, key: str) -> Json:
    async def ask(tx: Tx) -> Json:
        await tx.execute(f"set local lock_timeout = '{_WAIT_FOR_KEY}'")
        found = await store.claim(tx, key, "observed", "never")
        if found is None or found.state == "never":
            return {"outcome": "never"}
        if found.state == "claimed":
            return {"outcome": "unknown"}
        meta = found.answer.get("_meta", {}).get(EXTENSION) if "outcome" not in found.answer else found.answer
        return {"outcome": found.state, "meta": meta, "result": found.answer}

    try:
        return await store.transact(ask)
    except asyncpg.LockNotAvailableError:
        return {"outcome": "unknown"}


async def _rolled_back(store: PostgresStore, look: Any) -> Any:
    async def work(tx: Tx) -> None:
        raise _TakenBack(await look(tx))

    try:
        await store.transact(work)
    except _TakenBack as seen:
        return seen.finding
    raise AssertionError("unreachable")
