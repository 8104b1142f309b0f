"""Receipts and the Reversal Record: pure (G10). Appended, never edited."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from recorder.reversing.outcome import Judgement, Part
from recorder.reversing.work import Decided
from takeback.messages.entry import Category
from takeback.messages.plan import Receipt, ReceiptPart, ReversalRecord, StepOutcome


@dataclass(frozen=True, slots=True)
class Word:
    """On whose word a step was taken, in what capacity, when (S14)."""

    by: str
    authority: str
    at: datetime


def plain_receipt(
    entry: str, outcome: StepOutcome, word: Word, detail: str | None, reversal: str | None = None
) -> Receipt:
    """The receipt of a step for which nothing was sent."""
    return Receipt(
        entry=entry,
        reversal=reversal,
        outcome=outcome,
        detail=detail,
        approved_by=word.by,
        authority=word.authority,
        at=word.at,
    )


def receipt_of(
    entry: str,
    reversal: str | None,
    judgement: Judgement,
    parts: Sequence[Part],
    word: Word,
    *,
    fields: Sequence[str] | None = None,
    side_effects: Sequence[str] = (),
) -> Receipt:
    """The receipt of a step that was tried: versions of the first record, and a part for each where there are several."""
    first = parts[0] if parts else None
    return Receipt(
        entry=entry,
        reversal=reversal,
        outcome=judgement.outcome,
        detail=judgement.detail,
        expected_version=first.expected_version if first else None,
        version_before=first.before.version if first and first.before else None,
        version_after=first.after.version if first and first.after else None,
        parts=[_part(part, judgement.outcome) for part in parts] if len(parts) > 1 else None,
        fields=list(fields) if fields is not None else None,
        approved_by=word.by,
        authority=word.authority,
        side_effects=list(side_effects),
        at=word.at,
    )


def reversal_record(
    decided: Decided, campaign: str, receipts: Sequence[Receipt], authorities: Mapping[str, str], at: datetime
) -> ReversalRecord:
    """The whole of a reversal, receipts in the order of the plan, not signed yet."""
    plan = decided.plan
    used = sorted({authorities[step.entry] for step in plan.steps if step.entry in authorities})
    category: Category | None = decided.category  # type: ignore[assignment]  # checked when the decision was taken in
    return ReversalRecord(
        id=record_id("rvl", plan.id),
        plan=plan.id,
        digest=plan.digest,
        campaign=campaign,
        approved_by=decided.by,
        authority=", ".join(used) or "none",
        reason=decided.reason,
        category=category,
        left_out=[step.entry for step in plan.steps if step.entry in decided.leave_out],
        overridden=[step.entry for step in plan.steps if step.entry in decided.override],
        foreseen_side_effects=plan.side_effects,
        receipts=list(receipts),
        suggestions=plan.suggestions,
        at=at,
    )


def record_id(prefix: str, *parts: str) -> str:
    """The id of a record that is written once for *parts*: whoever writes it again is told that it is there."""
    return f"{prefix}_{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:40]}"


def step_id(plan: str, entry: str) -> str:
    """The id of the record of a step's first receipt."""
    return record_id("stp", plan, entry)


def _part(part: Part, outcome: StepOutcome) -> ReceiptPart:
    own = outcome
    if outcome == "unverified" and part.verified:
        own = "reverted"
    elif outcome == "conflict" and (part.before is None or part.before.version == part.expected_version):
        own = "blocked"
    return ReceiptPart(
        resource=part.resource,
        outcome=own,
        expected_version=part.expected_version,
        version_before=part.before.version if part.before else None,
        version_after=part.after.version if part.after else None,
    )
