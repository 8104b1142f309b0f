"""The way of a call: every tool call, whichever tool and transport, passes here (J1; design.md, The way of a call).

resolve → decide → serialize → snapshot → intend → forward → conclude → release. What is not written is not forwarded (J2, J3);
what was forwarded is concluded even when its caller has left; what cannot be concluded stays in the journal as in doubt (J7).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cache
from typing import Any, Final, TypeVar

import structlog

from recorder import failpoints
from recorder.answers import (
    JOURNAL_AWAY,
    ONLY_READ,
    Answer,
    Replayed,
    answer_of,
    answer_of_stored,
    journal_unavailable,
    refused,
)
from recorder.concluding import Conclusions, interaction_of
from recorder.drafting import Stands, draft, step_of
from recorder.forwarding import Clock, Forwarded, forward, not_sent
from recorder.intake import Snapshot
from recorder.intending import Agreed, Intended, Intents, MovedOn, drafted
from recorder.journal import Idempotency, Journal, Refused, Unit
from recorder.journal.reading import JournalReader
from recorder.journal.vault import Vault
from recorder.kept import KeptAnswers
from recorder.policy import Decision
from recorder.resolving import Call, Outdated, Resolver
from recorder.serial import Serial
from recorder.servers import Servers
from recorder.toolport.port import ToolPort
from takeback.attempt import key_conflict
from takeback.auth import Caller
from takeback.errors import Problem
from takeback.messages.entry import CallRequest
from takeback.metrics import CALLS, OVERHEAD

log = structlog.get_logger()
_counted = cache(CALLS.labels)  # the library looks for its child anew each time
_HINT_SECONDS: Final = 1.0
_T = TypeVar("_T")

Ask = Callable[[Call, Decision, Snapshot | None], Awaitable[Answer]]
"""Puts a call to a person: writes the entry that waits, and says who was asked (`Approvals.ask`)."""
GoesOn = Callable[[], Awaitable[Answer | None]]
"""The answer of the earlier call that this one is the retry of, or None (S13)."""
Hint = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Tells listeners of a call that still runs; no fact, so nobody keeps it."""


class Recording:
    """Records and forwards calls. Any replica serves any call: nothing is kept here between two (J17)."""

    def __init__(
        self,
        *,
        journal: Journal,
        reader: JournalReader,
        vault: Vault,
        resolver: Resolver,
        servers: Servers,
        serial: Serial,
        intents: Intents,
        conclusions: Conclusions,
        kept: KeptAnswers,
        clock: Clock,
        ask: Ask,
        hint: Hint,
        forward_deadline: float,
    ) -> None:
        self._journal = journal
        self._reader = reader
        self._vault = vault
        self._resolver = resolver
        self._servers = servers
        self._serial = serial
        self._intents = intents
        self._conclusions = conclusions
        self._kept = kept
        self._clock = clock
        self._ask = ask
        self._hint = hint
        self._deadline = forward_deadline
        self.doubted: Callable[[], None] = lambda: None
        self._at_work: set[asyncio.Task[Any]] = set()

    async def call(
        self,
        run: str,
        caller: Caller,
        request: CallRequest,
        idempotency: Idempotency | None = None,
        goes_on: GoesOn | None = None,
    ) -> Answer:
        """Records the call and, where policy lets it, forwards it; answers as contract.md's table says.

        Raises `Problem` for what was not forwarded, and for a call that failed (502) or is in doubt (504), with its entry.
        *idempotency*: the caller's key; the entry in it is filled in here. *goes_on* is asked where an answer
        of the run waits to be fetched.
        """
        try:
            if idempotency is not None and (kept := await self._replay(run, caller, idempotency)) is not None:
                return kept
            return await self._call(run, caller, request, idempotency, goes_on)
        except Replayed as replayed:
            return await self._answer_kept(replayed.entry)
        except JOURNAL_AWAY as error:
            raise journal_unavailable(error) from error

    async def _call(
        self, run: str, caller: Caller, request: CallRequest, idempotency: Idempotency | None, goes_on: GoesOn | None
    ) -> Answer:
        """A write that would go on by what is remembered of its run saves a look; its turn's own look tells if that holds."""
        began = time.perf_counter()
        call = None
        remembered = self._resolver.remembered(run, caller)
        if remembered is not None and not (goes_on is not None and remembered.unfetched):
            try:
                call = await self._resolver.resolved(remembered, caller, request)
                if not call.is_read and (decision := call.decision()).verdict == "allow":
                    return await self._go_on(call._replace(fetched=goes_on is not None), decision, idempotency, began)
            except Outdated:
                call = None
        found = await self._resolver.look(run, caller)
        if goes_on is not None and found.unfetched and (answer := await goes_on()) is not None:
            return answer
        if call is None or found != remembered:
            call = await self._resolver.met(found, caller, request)
        return await self._go_on(call._replace(remembered=False), call.decision(), idempotency, began)

    async def _go_on(self, call: Call, decision: Decision, idempotency: Idempotency | None, began: float) -> Answer:
        if idempotency is not None:
            call = call._replace(idempotency=idempotency._replace(entry=call.entry))
        if decision.verdict == "deny":
            return await self._deny(call, decision)
        if decision.verdict == "ask":
            return await self._put(call, decision, None)
        return await self._to_its_end(self._read(call, None, began) if call.is_read else self._write(call, None, began))

    async def resume(self, call: Call, agreed: Agreed) -> Answer:
        """Forwards a call that a person agreed to, under the same steps; raises `MovedOn` where it fails closed (S13)."""
        began = time.perf_counter()
        return await self._to_its_end(
            self._read(call, agreed, began) if call.is_read else self._write(call, agreed, began)
        )

    async def drain(self) -> None:
        """Waits for the calls in hand, so that a shutdown leaves none in doubt."""
        while self._at_work:
            await asyncio.wait(set(self._at_work))
        await self._conclusions.drain()

    # --- the steps --------------------------------------------------------------------------------------------------------

    async def _write(self, call: Call, agreed: Agreed | None, began: float) -> Answer:
        port = await self._servers.port(call.campaign, call.operation.server, call.run.campaign_version)
        async with self._serial.turn(call.serial_key):
            intended = await self._intents.intend(call, port, agreed)
            if not isinstance(intended, Intended):
                decision, snapshot = intended
            else:
                return await self._forward(call, port, intended, began, asked=agreed is not None)
        if agreed is not None:
            raise MovedOn(decision.because[0])
        if decision.verdict == "deny":
            return await self._deny(call, decision)
        return await self._put(call, decision, snapshot)

    async def _forward(self, call: Call, port: ToolPort, intended: Intended, began: float, *, asked: bool) -> Answer:
        failpoints.reach("after-intent")
        if intended.resources is not call.resources:
            call = call._replace(resources=intended.resources)
        hinting = asyncio.get_running_loop().call_later(_HINT_SECONDS, self._hint_of, intended.stands)
        try:
            if time.monotonic() > intended.send_until:
                outcome = not_sent(call, "Its lease ran out before it was sent. Nothing was forwarded.")
            else:
                outcome = await forward(
                    call,
                    port,
                    intended.snapshot,
                    fence=intended.fence,
                    deadline=self._deadline,
                    intended_at=intended.stands.created_at,
                    clock=self._clock,
                )
        finally:
            hinting.cancel()
        failpoints.reach("before-conclusion")
        concluded = await self._conclusions.conclude(call, intended.stands, outcome)
        self._serial.left(call.serial_key, concluded.fence)
        return self._finished(call, concluded, outcome, began, asked=asked)

    async def _read(self, call: Call, agreed: Agreed | None, began: float) -> Answer:
        """A declared read: no lock, no snapshot, one record committed before its answer (J2, J12)."""
        port = await self._servers.port(call.campaign, call.operation.server, call.run.campaign_version)
        keys = await self._vault.keys(call.campaign)
        outcome = await forward(
            call, port, None, fence=None, deadline=self._deadline, intended_at=None, clock=self._clock
        )
        if outcome.step == "doubt":
            outcome = outcome._replace(step="fail")  # nothing was changed, whatever became of it
        stands, body = drafted(call, keys, agreed)
        try:
            concluded = await self._conclusions.conclude_read(call, stands._replace(body=body), outcome)
        except Refused as refusal:
            raise refused(refusal, ONLY_READ) from refusal
        except JOURNAL_AWAY as error:
            raise journal_unavailable(error, ONLY_READ) from error
        return self._finished(call, concluded, outcome, began, asked=agreed is not None)

    async def _deny(self, call: Call, decision: Decision) -> Answer:
        keys = await self._vault.keys(call.campaign)
        body = draft(call, keys, decision.because)
        stands = Stands(call.entry, None, body, None, not call.is_read)
        record, change = step_of(stands, body, "deny")
        appended = await self._journal.append(
            Unit([record], [change], idempotency=call.idempotency, interaction=interaction_of(call), stream_open=True)
        )
        _counted("deny", "denied").inc()
        written = appended.records[0]
        denied = stands._replace(status="denied", label=written.label, created_at=written.at)
        raise Problem(
            403, "denied", f"{decision.why} Nothing was forwarded.", entry=answer_of(denied).document["entry"]
        )

    async def _put(self, call: Call, decision: Decision, snapshot: Snapshot | None) -> Answer:
        """Puts the call to a person, with the doubt that stands in its way if there is one (S2)."""
        if not call.is_read:
            standing = await self._intents.standing(call)
            if standing.doubt is not None:
                decision = call.decision(standing.doubt)
                call = call._replace(doubt=standing.doubt)
        answer = await self._ask(call, decision, snapshot)
        _counted("ask", "awaiting_approval").inc()
        return answer

    # --- the caller's own key ---------------------------------------------------------------------------------------------

    async def _replay(self, run: str, caller: Caller, claim: Idempotency) -> Answer | None:
        kept = await self._kept.of(claim)
        if kept is None:
            return None
        await self._resolver.meet(run, caller)  # whoever has left since is told nothing more (G7)
        entry, body_hash = kept
        if body_hash != claim.body_hash:
            raise key_conflict()
        return await self._answer_kept(entry)

    async def _answer_kept(self, entry: str) -> Answer:
        """The entry that the key stands for, in its present state; its result opened for the caller that sent it."""
        stored = await self._reader.entry(entry)
        assert stored is not None, f"the entry {entry} of an idempotency key is gone"
        keys = await self._vault.keys(stored.campaign)
        result = keys.unseal_fields(stored.id, "result", stored.body["entry"]["result"])
        answer = answer_of_stored(stored, result, await self._kept.approval_of(entry))
        if answer.problem is not None:
            raise answer.problem
        return answer

    # --- what the steps need ----------------------------------------------------------------------------------------------

    def _finished(self, call: Call, concluded: Stands, outcome: Forwarded, began: float, *, asked: bool) -> Answer:
        status = concluded.status or "pending"
        if status == "in_doubt":
            self.doubted()
        seconds = time.perf_counter() - began
        # Whoever waits for the answer does not wait for its being counted.
        asyncio.get_running_loop().call_soon(_counting, call, status, asked, seconds, outcome.tool_seconds)
        answer = answer_of(concluded, outcome.detail, outcome.result, late=True)
        if answer.problem is not None:
            raise answer.problem
        return answer

    def _hint_of(self, stands: Stands) -> None:
        pending = answer_of(stands).document["entry"]
        self._keep(asyncio.ensure_future(self._hint(pending)))

    async def _to_its_end(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs *work* to its end even if its caller goes away: an outcome is never dropped with a connection."""
        try:
            return await asyncio.shield(self._keep(asyncio.ensure_future(work)))
        except Refused as refusal:
            raise refused(refusal) from refusal

    def _keep(self, task: asyncio.Future[Any]) -> asyncio.Future[Any]:
        assert isinstance(task, asyncio.Task)
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)
        return task


def _counting(call: Call, status: str, asked: bool, seconds: float, tool_seconds: float) -> None:
    OVERHEAD.observe(max(0.0, seconds - tool_seconds))
    _counted("ask" if asked else "allow", status).inc()
    level = logging.DEBUG if status == "committed" else logging.INFO
    if log.is_enabled_for(level):
        log.log(
            level,
            "call concluded",
            campaign=call.campaign,
            run=call.run.id,
            entry=call.entry,
            operation=f"{call.operation.server}/{call.operation.name}",
            status=status,
            milliseconds=round(seconds * 1000, 2),
        )
