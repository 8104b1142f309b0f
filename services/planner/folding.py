"""Where a plan stands, folded from what the journal says about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from takeback.messages.events import PlanDecided
from takeback.messages.plan import Plan, PlanStatus, Receipt, ReversalRecord

ENDED: frozenset[PlanStatus] = frozenset({"rejected", "stale", "completed", "partial", "failed"})
"""Statuses that no plan leaves."""

_WENT_WELL = frozenset({"reverted", "already_reverted", "left_out"})
_DID_SOMETHING = frozenset({"reverted", "already_reverted"})


@dataclass(frozen=True, slots=True)
class PlanState:
    """A plan as proposed, with its present status, the decision on it and what came of it."""

    plan: Plan
    decided: PlanDecided | None
    record: ReversalRecord | None
    request: str | None
    """What the request was that made it, for one that came with an Idempotency-Key."""

    @property
    def ended(self) -> bool:
        return self.plan.status in ENDED


def fold(facts: Iterable[Mapping[str, Any]], *, superseded: bool = False) -> PlanState | None:
    """The state of one plan; None before it was proposed. *superseded*: a fresh plan was made in its place (G6)."""
    proposed: Mapping[str, Any] | None = None
    decided: PlanDecided | None = None
    receipts: list[Receipt] = []
    record: ReversalRecord | None = None
    for fact in facts:
        data = fact["data"]
        match fact["type"]:
            case "plan.proposed":
                proposed = proposed or data
            case "plan.decided":
                decided = decided or PlanDecided.model_validate(data)
            case "reversal.step":
                receipts.append(Receipt.model_validate(data["receipt"]))
            case "reversal.completed":
                record = ReversalRecord.model_validate(data["record"])
    if proposed is None:
        return None
    plan = Plan.model_validate(proposed["plan"])
    status = _status(plan, decided, receipts, record, superseded=superseded)
    return PlanState(plan.model_copy(update={"status": status}), decided, record, proposed.get("request"))


def as_decided(state: PlanState, decision: Literal["approve", "reject"]) -> PlanState:
    """*state* of a plan that was open, as *decision* on it leaves it, before anything comes of that."""
    status: PlanStatus = "approved" if decision == "approve" else "rejected"
    return replace(state, plan=state.plan.model_copy(update={"status": status}))


def outcome_of(receipts: Iterable[Receipt], *, any_step: bool) -> PlanStatus:
    """The status in which a reversal with *receipts* ends: completed, partial, failed; stale when nothing was tried."""
    outcomes = [receipt.outcome for receipt in receipts]
    if not outcomes:
        return "stale" if any_step else "completed"
    if all(outcome in _WENT_WELL for outcome in outcomes):
        return "completed"
    return "partial" if any(outcome in _DID_SOMETHING for outcome in outcomes) else "failed"


def _status(
    plan: Plan,
    decided: PlanDecided | None,
    receipts: list[Receipt],
    record: ReversalRecord | None,
    *,
    superseded: bool,
) -> PlanStatus:
    if record is not None:
        return outcome_of(record.receipts, any_step=bool(plan.steps))
    if receipts:
        return "executing"
    if decided is not None:
        return "approved" if decided.decision == "approve" else "rejected"
    return "stale" if superseded else "proposed"
