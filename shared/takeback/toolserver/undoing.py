"""Taking back: version-checked, in one transaction, verified against the state before, once for its key (G8, G9)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import asyncpg
from pydantic_core import to_jsonable_python

from takeback.extension import UndoRequest
from takeback.toolserver.call import Call
from takeback.toolserver.calling import InDoubt, Json, left_by, offer
from takeback.toolserver.effects import changes, effects_of, with_effects
from takeback.toolserver.errors import NotRestored, OperationError
from takeback.toolserver.operation import Operation
from takeback.toolserver.record import Fields, State, Tx
from takeback.toolserver.store import AnswerState, PostgresStore, Token

_log = logging.getLogger("takeback.toolserver")


async def undo(store: PostgresStore, operations: Mapping[str, Operation], request: UndoRequest) -> Json:
    """Take back what the token stands for, and answer what was done; the same key always gets the same answer.

    Raises whatever the database raises: then nothing was changed, or the key will tell. Raises `InDoubt` where an
    external system was asked under this key and nobody can say what came of it.
    """
    work = _Undoing(store, operations, request)
    external, locks = await store.read(work.look)
    return await (work.externally(locks) if external else work.at_once(locks))


class _Undoing:
    """One undo on its way."""

    def __init__(self, store: PostgresStore, operations: Mapping[str, Operation], request: UndoRequest) -> None:
        self._store = store
        self._operations = operations
        self._request = request

    async def look(self, tx: Tx) -> tuple[bool, list[str]]:
        """Whether the call was external, and what to lock: its records, and the token itself."""
        name = self._request.compensation_token
        token = await self._store.token(tx, name, lock=False)
        if token is None or token.operation not in self._operations:
            return False, []
        resources = [record.resource_of(was["ids"]) for record, was in self._records(token)]
        return self._operations[token.operation].external, [*resources, name]

    async def at_once(self, locks: list[str]) -> Json:
        """All in one transaction; what fails is rolled back."""
        try:
            return await self._store.transact(self._run, locks=locks)
        except OperationError as error:
            detail = str(error)
        except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.OperatorInterventionError):
            raise
        except Exception as error:
            _log.exception("an undo failed and was rolled back")
            detail = f"The revert failed inside ({type(error).__name__}). Nothing was changed."
        return await self._store.transact(lambda tx: self._keep(tx, "failed", detail))

    async def externally(self, locks: list[str]) -> Json:
        """First the claim, committed, then the reverse, once: after a crash in between the key says `claimed`."""
        answered = await self._store.transact(self._claimed)
        if answered is not None:
            return answered
        try:
            return await self._store.transact(self._decide, locks=locks, once=True)
        except OperationError as error:
            detail = str(error)
        return await self._store.transact(lambda tx: self._answer(tx, "failed", detail=detail))

    async def _run(self, tx: Tx) -> Json:
        answered = await self._claimed(tx)
        return answered if answered is not None else await self._decide(tx)

    async def _decide(self, tx: Tx) -> Json:
        token = await self._store.token(tx, self._request.compensation_token)
        if token is None or token.operation not in self._operations:
            return await self._answer(tx, "failed", detail="Nobody here issued this token. Nothing was changed.")
        if token.reverted_by is not None:
            return await self._answer(
                tx, "already_reverted", detail="It was taken back before. Nothing was changed now."
            )
        if token.closed:
            return await self._answer(tx, "failed", detail="Its window has closed. Nothing was changed.")
        records = self._records(token)
        now = [await record.state(tx, was["ids"]) for record, was in records]
        if moved := self._moved(token, now):
            effects = effects_of([(state, state) for state in now], [], Call(), [])
            return await self._answer(tx, "conflict", detail=moved, **with_effects(effects))
        return await self._take_back(tx, token, now)

    async def _keep(self, tx: Tx, outcome: str, detail: str) -> Json:
        """Answer without doing anything, and remember the answer."""
        answered = await self._claimed(tx)
        return answered if answered is not None else await self._answer(tx, outcome, detail=detail)

    async def _claimed(self, tx: Tx) -> Json | None:
        found = await self._store.claim(tx, self._request.idempotency_key, "undo")
        if found is None:
            return None
        if found.state == "never":
            return {"outcome": "failed", "detail": "Its key was given up when somebody asked what became of it."}
        if found.state == "claimed":
            raise InDoubt("an undo with this key was begun, and has not said how it ended")
        answer: Json = found.answer
        return answer

    def _moved(self, token: Token, now: list[State]) -> str | None:
        """Why the undo would overwrite what somebody else did; None when the records are as expected."""
        named = self._request.if_versions or {}
        for position, (state, was) in enumerate(zip(now, token.body["records"], strict=True)):
            expected = named.get(state.resource, self._request.if_version if position == 0 else was["version"])
            if state.version == expected:
                if expected == was["version"] and not self._request.force and _made_anew(was, state):
                    return f"{state.resource} was made anew since, at the same version. Nothing was changed."
                continue
            # Of a further record nobody said which version is expected: it may have another one and still be as the
            # call left it, because what came after has been taken back.
            if position > 0 and state.resource not in named and state.fields == was["after"]:
                continue
            return (
                f"{state.resource} has version {state.version}, the undo expects {expected}: somebody changed it"
                " since. Nothing was changed."
            )
        return None

    async def _take_back(self, tx: Tx, token: Token, now: list[State]) -> Json:
        operation, said = self._operations[token.operation], Call(key=self._request.idempotency_key)
        self._check_fields(token)
        if operation.external:
            return await self._replay(tx, token, now, said)
        records = self._records(token)
        reached: list[State] = []
        for (record, was), state in reversed(list(zip(records, now, strict=True))):
            target = self._target(was["before"], was["after"], state)
            ids = await record.put(tx, state, target, was["after"], said)
            after = await record.state(tx, ids)
            if wrong := changes(target, after.fields):
                fields = ", ".join(change["field"] for change in wrong)
                raise NotRestored(f"The revert of {operation.name} did not bring back {fields}. Nothing was changed.")
            reached.insert(0, after)
        if not records:
            await operation.take_back(tx, said, operation.parse(token.body["arguments"]), token.body["result"])
        return await self._reverted(tx, token, now, reached, said, token.body["result"])

    async def _replay(self, tx: Tx, token: Token, now: list[State], said: Call) -> Json:
        """Let the application take it back, once, and look at what came of it: nothing here can be rolled back."""
        if self._request.fields is not None:
            raise OperationError("The application takes back the whole change, not single fields. Nothing was changed.")
        operation = self._operations[token.operation]
        arguments = operation.parse(token.body["arguments"])
        result = await operation.take_back(tx, said, arguments, token.body["result"])
        records = self._records(token)
        reached = [await left_by(operation, record, tx, was["ids"]) for record, was in records]
        wrong = [
            f"{change['field']} of {state.resource}"
            for (_, was), state in zip(records, reached, strict=True)
            for change in changes(was["before"], state.fields)
        ]
        if wrong:
            moves: list[tuple[State | None, State]] = list(zip(now, reached, strict=True))
            effects = effects_of(moves, [], said, operation.undo_side_effects)
            detail = f"The application took it for done, and did not bring back {', '.join(wrong)}."
            return await self._answer(tx, "unverified", detail=detail, **with_effects(effects))
        return await self._reverted(tx, token, now, reached, said, to_jsonable_python(result))

    async def _reverted(
        self, tx: Tx, token: Token, now: list[State], reached: list[State], said: Call, result: Any
    ) -> Json:
        operation = self._operations[token.operation]
        await self._store.use(tx, token, self._request.idempotency_key)
        moves: list[tuple[State | None, State]] = list(zip(now, reached, strict=True))
        remaps = [
            {"from": was.resource, "to": is_.resource}
            for was, is_ in zip(now, reached, strict=True)
            if was.resource != is_.resource
        ]
        effects = effects_of(moves, [], said, operation.undo_side_effects)
        return await self._answer(
            tx,
            "reverted",
            **with_effects(effects),
            undo=await self._redo(tx, token, now, reached, result),
            sideEffects=[*operation.undo_side_effects, *said.side_effects],
            **({"remaps": remaps} if remaps else {}),
        )

    def _target(self, before: Fields | None, after: Fields | None, now: State) -> Fields | None:
        """What to bring the record to: all of *before*, or only the fields that were asked for."""
        wanted = self._request.fields
        if wanted is None:
            return before
        if before is None or now.fields is None:
            raise OperationError("Single fields cannot be taken back of a record that was made or deleted.")
        ours = [name for name in wanted if name in before or name in (after or {})]
        kept = {name: value for name, value in now.fields.items() if name not in ours}
        return kept | {name: before[name] for name in ours if name in before}

    def _check_fields(self, token: Token) -> None:
        records = token.body["records"]
        known = {name for was in records for fields in (was["before"], was["after"]) for name in fields or {}}
        unknown = [name for name in self._request.fields or [] if name not in known]
        if unknown:
            raise OperationError(f"There is no field {', '.join(unknown)} to take back. Nothing was changed.")

    async def _redo(self, tx: Tx, token: Token, now: list[State], reached: list[State], result: Any) -> Json:
        """The reversal's own undo (S12); an operation without a record has none that could be verified."""
        if not reached:
            return {"kind": "unknown", "why": "nothing shows what it changed"}
        operation = self._operations[token.operation]
        if result is None:
            return {"kind": "none", "why": "the application offers no way back from its own reverse"}
        body = token.body | {
            "result": result,
            "records": [
                {
                    "ids": to_jsonable_python(after.ids),
                    "before": was.fields,
                    "after": after.fields,
                    "version": after.version,
                }
                for was, after in zip(now, reached, strict=True)
            ],
        }
        issued, undo_by = await self._store.issue(tx, token.operation, body, operation.window, reverses=token.token)
        return offer(operation, issued, undo_by, reached)

    def _records(self, token: Token) -> list[tuple[Any, Json]]:
        operation = self._operations.get(token.operation)
        return [] if operation is None else list(zip(operation.records, token.body["records"], strict=True))

    async def _answer(self, tx: Tx, outcome: str, **members: Any) -> Json:
        answer = {"outcome": outcome, **members}
        acted = outcome in {"reverted", "already_reverted", "unverified"}
        state: AnswerState = "committed" if acted else "failed"
        await self._store.conclude(tx, self._request.idempotency_key, state, answer)
        return answer


def _made_anew(was: Json, now: State) -> bool:
    """Whether a record at the version that the call left holds something else than what the call wrote.

    Revisions of a record that somebody deleted and made again begin anew, and come by the same number once more.
    """
    before, after, fields = was["before"] or {}, was["after"] or {}, now.fields or {}
    written = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return now.exists != (was["after"] is not None) or any(fields.get(name) != after.get(name) for name in written)
