"""A reversal on its way: the approved plan as one recorder has taken it from the queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from recorder.reversing.work import Decided, Left, observed_of
from takeback.messages.plan import Plan, Receipt


@dataclass(slots=True)
class Reversal:
    """*id* is the plan's. *done* and *left* grow step by step; *serialize* is how the campaign orders its writes."""

    id: str
    campaign: str
    decided: Decided
    kind: str
    authorities: Mapping[str, str]
    resources: list[str]
    taken_at: datetime
    serialize: str = "campaign"
    heard: float = field(default_factory=time.monotonic)
    done: dict[str, Receipt] = field(default_factory=dict)
    left_now: dict[str, str | None] = field(default_factory=dict)
    left_before: dict[str, str | None] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        """The database's time, carried on from when the reversal was taken."""
        return self.taken_at + timedelta(seconds=time.monotonic() - self.heard)

    @property
    def left(self) -> Left:
        """The versions that records were left at so far."""
        return Left(self.left_now, self.left_before)


def decided_of(proposed: Mapping[str, Any], decision: Mapping[str, Any], by: str) -> Decided:
    """The plan as it was proposed (the body of ``plan.proposed``) with the decision (the body of ``plan.decided``)."""
    return Decided(
        plan=Plan.model_validate(proposed["plan"]),
        by=by,
        leave_out=frozenset(decision.get("leaveOut") or ()),
        override=frozenset(decision.get("override") or ()),
        fields={entry: list(fields) for entry, fields in (decision.get("fields") or {}).items() if fields},
        reason=decision.get("reason") or "",
        category=decision.get("category"),
        observed=observed_of(proposed.get("observed") or ()),
    )
