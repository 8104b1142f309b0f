"""One call that takes a turn back: plan and decision in one, when nothing in it needs a choice (G9, U1)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from planner.choices import authority
from planner.decisions import Decisions
from planner.fact import Fact
from planner.folding import PlanState
from planner.plan import needs_choice
from planner.planning import Now, Planning, plan_id
from takeback.attempt import Attempt
from takeback.auth import Caller
from takeback.errors import Problem, human_required, not_found
from takeback.ids import new_id
from takeback.messages.plan import Plan, PlanDecision, UndoRequest

LATEST = "latest"
_WAIT_SECONDS = 30.0

SkipReason = Literal["already_reverted", "not_committed"]


@dataclass(frozen=True, slots=True)
class Undone:
    """What the one call came to. *finished* is false when the reversal still runs after the longest wait."""

    reverted: bool
    skip_reason: SkipReason | None = None
    state: PlanState | None = None
    finished: bool = True

    def wire(self) -> dict[str, Any]:
        """The answer of the contract."""
        record = self.state.record if self.state is not None else None
        told: dict[str, Any] = {
            "reverted": self.reverted,
            "plan": self.state.plan.wire() if self.state is not None else None,
            "record": record.wire() if record is not None else None,
        }
        return told | ({"skipReason": self.skip_reason} if self.skip_reason is not None else {})


class Undoing:
    """Many may click at once: in this process one after another, across processes by waiting for the plan under way."""

    def __init__(self, planning: Planning, decisions: Decisions) -> None:
        self._planning = planning
        self._decisions = decisions
        self._turns = Turns()

    async def undo(
        self, campaign: str, interaction: str, caller: Caller, request: UndoRequest, attempt: Attempt | None = None
    ) -> Undone:
        """Takes *interaction* (or ``latest``) of *campaign* back; the same *attempt* again is answered with what became of it.

        Raises `Problem` 403 without authority, 404 for what is not there, 409 ``no-turn`` where there is no latest one and
        ``choice-needed`` with the plan when a person must choose.
        """
        deadline = time.monotonic() + _WAIT_SECONDS
        now = await self._planning.now(campaign)
        await self._planning.store.require(campaign, caller)
        if not caller.is_human:
            raise human_required("take a turn back")
        made = await self._planning.made_by(attempt, request)
        if made is not None and made.decided is not None:
            return _undone(await self._decisions.wait(made.plan, _WAIT_SECONDS))
        plan = plan_id(attempt if made is None else None)  # one that is not decided was handed over for a choice
        if interaction == LATEST:
            interaction = await self._latest(campaign)
        async with self._turns.of((campaign, interaction)):
            while True:
                # Again: the same attempt may have come twice at the same time.
                made = await self._planning.made_by(attempt, request)
                if made is not None and made.decided is not None:
                    return _undone(await self._decisions.wait(made.plan, _WAIT_SECONDS))
                writes = await self._writes(campaign, interaction, now)
                running = await self._planning.store.plans_under_way([fact.id for fact in writes])
                if not running:
                    try:
                        return await self._undo_now(campaign, writes, caller, request, now, plan)
                    except Problem as problem:
                        if problem.slug != "plan-stale" or time.monotonic() > deadline:
                            raise
                    plan = new_id("pln")  # somebody was faster: what is true now decides
                    now = await self._planning.now(campaign)
                    continue
                left = deadline - time.monotonic()
                under_way = await self._planning.state(running[0])
                assert under_way is not None
                state = await self._decisions.wait(under_way.plan, left)
                if not state.ended:
                    return Undone(reverted=False, state=state, finished=False)
                now = await self._planning.now(campaign)

    async def _undo_now(
        self,
        campaign: str,
        writes: Sequence[Fact],
        caller: Caller,
        request: UndoRequest,
        now: Now,
        plan: str,
    ) -> Undone:
        role = await self._planning.store.role(campaign, caller.sub)
        if authority(caller.sub, role, [fact for fact in writes if fact.happened]) is None:
            raise await self._decisions.refuse(campaign, caller, "take this turn back")
        if not any(fact.entry.status in ("committed", "reverting") for fact in writes):
            reverted = any(fact.entry.status == "reverted" for fact in writes)
            return Undone(reverted=False, skip_reason="already_reverted" if reverted else "not_committed")
        draft = await self._planning.draft(plan, campaign, [fact.id for fact in writes], now)
        await self._planning.append(draft, caller, request=request.model_dump_json())
        decision = PlanDecision(
            decision="approve", digest=draft.plan.digest, reason=request.reason, category=request.category
        )
        why = needs_choice(draft.plan, [fact.id for fact in writes])
        if why:
            await self._planning.now(campaign)
            raise choice_needed(draft.plan, why)
        return _undone(await self._decisions.approve(draft.plan, caller, decision, _WAIT_SECONDS))

    async def _latest(self, campaign: str) -> str:
        found = await self._planning.store.latest_interaction(campaign)
        if found is None:
            raise no_turn()
        return found

    async def _writes(self, campaign: str, interaction: str, now: Now) -> list[Fact]:
        found = await self._planning.interaction(campaign, interaction, now)
        if not found:
            raise not_found()
        return [fact for fact in found if not fact.is_read and not fact.is_reversal]


class Turns:
    """One at a time for each key, in the order of coming."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._waiting: Counter[tuple[str, str]] = Counter()

    @asynccontextmanager
    async def of(self, key: tuple[str, str]) -> AsyncIterator[None]:
        """The turn of *key*; the lock is forgotten with the last one that wants it."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._waiting[key] += 1
        try:
            async with lock:
                yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._locks[key]


def no_turn() -> Problem:
    """There is no latest turn: calls were made without saying which turn they belong to, or none took effect."""
    return Problem(
        409,
        "no-turn",
        "No call of this campaign that took effect named a turn (`interaction`), so there is no latest one. Nothing was "
        "changed; take back a run or single calls by a plan instead (POST …/plans with `run` or `entries`).",
    )


def choice_needed(plan: Plan, why: Sequence[str]) -> Problem:
    """A person must look at *plan*: it comes with the refusal."""
    return Problem(
        409,
        "choice-needed",
        f"A person has to choose: {'; '.join(why)}. Nothing was changed; decide /v1/plans/{plan.id}.",
        plan=plan.wire(),
    )


def _undone(state: PlanState) -> Undone:
    if not state.ended:
        return Undone(reverted=False, state=state, finished=False)
    outcomes = {receipt.outcome for receipt in state.record.receipts} if state.record is not None else set()
    if "reverted" in outcomes:
        return Undone(reverted=state.plan.status == "completed", state=state)
    if outcomes == {"already_reverted"}:
        return Undone(reverted=False, skip_reason="already_reverted", state=state)
    return Undone(reverted=False, state=state)
