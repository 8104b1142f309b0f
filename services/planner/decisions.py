"""Deciding a plan: a person's word on exactly what was read, a fact once the recorder has appended it (G5, G6, G7)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from planner.choices import authority, check, is_same, to_be_judged
from planner.fact import Fact, with_unsettled
from planner.folding import PlanState, as_decided
from planner.plan import moved_past
from planner.planning import Draft, Now, Planning
from planner.waiting import Waiting
from takeback.attempt import Attempt, key_conflict
from takeback.auth import Caller
from takeback.errors import Problem, human_required, not_authorised
from takeback.ids import new_id
from takeback.inbox import Inbox
from takeback.messages.campaign import Role
from takeback.messages.plan import Plan, PlanDecision
from takeback.metrics import PLANS
from takeback.rpc import Rpc
from takeback.subjects import RPC_APPEND, RPC_REFUSED


class Decisions:
    """Takes decisions in, and waits for what becomes of them."""

    def __init__(self, planning: Planning, inbox: Inbox, rpc: Rpc, waiting: Waiting) -> None:
        self._planning = planning
        self._inbox = inbox
        self._rpc = rpc
        self._waiting = waiting

    async def decide(
        self,
        plan_id: str,
        caller: Caller,
        decision: PlanDecision,
        wait_seconds: float,
        attempt: Attempt | None = None,
    ) -> PlanState:
        """Appends *decision*; answers the plan's state, after *wait_seconds* at the latest: 0 as the decision leaves it.

        Raises `Problem` 403 without authority over a step (the recorder logs it), 409 ``digest-mismatch``,
        ``plan-decided`` or ``plan-stale`` (which names a fresh plan), 422 for a choice that does not fit. Saying the same
        again is answered with what became of it; saying something else in the same *attempt* is 422.
        """
        state, now, role = await self._planning.seen_at(plan_id, caller)
        if not caller.is_human:
            raise human_required("decide a plan")
        plan, decided = state.plan, state.decided
        if attempt is not None and decided is not None and decided.request == attempt.name:
            if not is_same(decided, decision):
                raise key_conflict()
            return await self.wait(plan, wait_seconds)
        judged = set(to_be_judged(plan, decision))
        facts = await self._planning.store.facts(plan.campaign, {*judged, *(step.entry for step in plan.steps)})
        capacity = await self._authority(plan, caller, role, [fact for fact in facts if fact.id in judged])
        check(plan, decision, {fact.id: _changed_fields(fact.effects) for fact in facts})
        wait_seconds = wait_seconds if decision.decision == "approve" else 0
        if decided is not None:
            return _own(await self.wait(plan, wait_seconds), decision, caller)
        if decision.decision == "approve":
            await self._still_holds(plan, caller, now)
        if wait_seconds == 0:
            await self._append(plan, caller, capacity, decision, attempt)
            return as_decided(state, decision.decision)
        state = await self._append_and_wait(plan, caller, capacity, decision, wait_seconds, attempt)
        return _own(state, decision, caller)

    async def approve(self, plan: Plan, caller: Caller, decision: PlanDecision, wait_seconds: float) -> PlanState:
        """Approves a plan that was made in the same breath; the recorder asks for the authority again."""
        store = self._planning.store
        facts = await store.facts(plan.campaign, to_be_judged(plan, decision))
        capacity = await self._authority(plan, caller, await store.role(plan.campaign, caller.sub), facts)
        return await self._append_and_wait(plan, caller, capacity, decision, wait_seconds)

    async def wait(self, plan: Plan, seconds: float) -> PlanState:
        """The state of *plan*, once its reversal has ended or *seconds* are over."""
        with self._waiting.for_plan(plan.id) as ended:
            if seconds > 0:
                await self._inbox.catch_up(plan.campaign)  # its end may have come before anybody waited for it here
            return await self._until(plan, ended, seconds)

    async def _append_and_wait(
        self,
        plan: Plan,
        caller: Caller,
        capacity: str,
        decision: PlanDecision,
        seconds: float,
        attempt: Attempt | None = None,
    ) -> PlanState:
        with self._waiting.for_plan(plan.id) as ended:  # before the append: its end may come at once
            await self._append(plan, caller, capacity, decision, attempt)
            return await self._until(plan, ended, seconds)

    async def _until(self, plan: Plan, ended: asyncio.Event, seconds: float) -> PlanState:
        state = await self._planning.state(plan.id)
        if state is not None and state.ended:
            return state
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), seconds)
        state = await self._planning.state(plan.id)
        if state is None or not state.ended:
            await self._inbox.catch_up(plan.campaign)
            state = await self._planning.state(plan.id)
        assert state is not None, "a plan that was proposed is in the journal"
        return state

    async def _authority(self, plan: Plan, caller: Caller, role: Role | None, facts: Iterable[Fact]) -> str:
        """In what capacity *caller* takes back every one of *facts*."""
        held = authority(caller.sub, role, facts)
        if held is None:
            raise await self.refuse(plan.campaign, caller, "take back every step of this plan that is not left out")
        return held

    async def refuse(self, campaign: str, caller: Caller, what: str) -> Problem:
        """The 403 to raise, once the recorder keeps it in the security log (G7)."""
        by = {"sub": caller.sub, "kind": caller.kind}
        await self._rpc.request(RPC_REFUSED, {"campaign": campaign, "by": by, "what": what})
        return not_authorised(what)

    async def _still_holds(self, plan: Plan, caller: Caller, now: Now) -> None:
        """Raises 409 ``plan-stale`` with a fresh plan when the world has moved past *plan* (G6)."""
        fresh = await self._planning.draft(new_id("pln"), plan.campaign, plan.targets, now)
        if fresh.plan.digest == plan.digest:
            return
        entries = {step.entry for step in plan.steps}
        facts = with_unsettled(await self._planning.store.facts(plan.campaign, entries), now.unsettled)
        gone = {fact.id for fact in facts if fact.id in entries and fact.entry.status in ("reverting", "reverted")}
        if moved_past(plan, fresh.plan, gone):
            raise stale(await self._fresh(plan, caller, fresh))

    async def _fresh(self, plan: Plan, caller: Caller, draft: Draft | None = None) -> Plan:
        """What *plan* means now, proposed in its place."""
        if draft is None:
            now = await self._planning.now(plan.campaign)
            draft = await self._planning.draft(new_id("pln"), plan.campaign, plan.targets, now)
        await self._planning.append(draft, caller, supersedes=plan.id)
        await self._inbox.catch_up(plan.campaign)
        PLANS.labels("stale").inc()
        return draft.plan

    async def _append(
        self, plan: Plan, caller: Caller, capacity: str, decision: PlanDecision, attempt: Attempt | None
    ) -> None:
        by: dict[str, Any] = {"sub": caller.sub, "kind": caller.kind, "authority": capacity}
        body = decision.wire() | {"plan": plan.id, "request": None if attempt is None else attempt.name}
        wanted = {"id": f"{plan.id}-decided", "type": "plan.decided", "campaign": plan.campaign, "by": by, "body": body}
        try:
            await self._rpc.request(RPC_APPEND, wanted)
        except Problem as problem:
            if problem.slug == "plan-stale":
                raise stale(await self._fresh(plan, caller)) from problem
            raise
        PLANS.labels("approved" if decision.decision == "approve" else "rejected").inc()


def _own(state: PlanState, decision: PlanDecision, caller: Caller) -> PlanState:
    """*state* when it is *caller*'s own decision that counts; raises 409 ``plan-decided`` otherwise."""
    if state.decided is None or not is_same(state.decided, decision) or state.decided.by.sub != caller.sub:
        by = state.decided.by.sub if state.decided is not None else "nobody"
        raise Problem(
            409,
            "plan-decided",
            f"{by} has decided this plan otherwise before. Nothing was changed.",
            plan=state.plan.id,
        )
    return state


def stale(fresh: Plan) -> Problem:
    """The world has moved past the plan; *fresh* is what it means now."""
    return Problem(
        409,
        "plan-stale",
        f"Since this plan was made something changed that it depends on. Nothing was changed; decide /v1/plans/{fresh.id}.",
        plan=fresh.id,
        href=f"/v1/plans/{fresh.id}",
    )


def _changed_fields(effects: list[Any]) -> list[str]:
    return [change.field for effect in effects for change in effect.changes]
