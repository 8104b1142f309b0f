"""Reversal Plans, decisions, receipts and Reversal Records (contract.md, Planner)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from takeback.messages.base import Id, Instant, Message, Request, Text
from takeback.messages.entry import Category, Via

LinkSource = Literal["declared", "host", "inferred", "default", "confirmed"]
PlanStatus = Literal["proposed", "rejected", "stale", "approved", "executing", "completed", "partial", "failed"]
StepOutcome = Literal[
    "reverted", "already_reverted", "conflict", "unverified", "failed", "in_doubt", "left_out", "blocked",
    "authority_lost",
]  # fmt: skip


class Link(Message):
    """*entry* (the later one) depends on *dependsOn*, and how that is known (G1)."""

    id: Id
    entry: Id
    depends_on: Id
    source: LinkSource
    resource: str | None = None
    confirmed_by: str | None = None
    confirmed_at: Instant | None = None


class ConflictField(Message):
    """A field that somebody changed after the agent did: its value before the call, what the agent wrote, now."""

    field: str
    was: Any = None
    wrote: Any = None
    now: Any = None


class Conflict(Message):
    """What stands between a step and its reversal, seen when the plan was made (G4, G8)."""

    fields: list[ConflictField] = Field(default_factory=list)


class Because(Message):
    """Why a step is in the plan: the entry that it builds on and the source of that link; a target names itself."""

    entry: Id
    source: str


class Step(Message):
    """One entry that will be taken back, in its safe place in the order (G4)."""

    entry: Id
    label: str
    server: str
    operation: str
    resource: str | None = None
    undo_by: Instant | None = None
    if_version: str | None = None
    observed_version: str | None = None
    expects: Id | None = None
    conflict: Conflict | None = None
    needs_person: Literal["no_version", "ui"] | None = None
    via: Via = "api"
    because: list[Because] = Field(default_factory=list)


class Consequence(Message):
    """What follows when the approver leaves a step out, or overrides its conflict (G5)."""

    entry: Id
    if_left_out: list[str] = Field(default_factory=list)
    if_overridden: list[str] = Field(default_factory=list)


class NotReversible(Message):
    """An entry that cannot be taken back, and which kind of reason that is (G4)."""

    entry: Id
    reason: Literal["declared", "window_closed", "unknown", "failed"]
    detail: str


class UnresolvedEntry(Message):
    """An entry that nobody can decide about yet; never mixed with what is irreversible (J11)."""

    entry: Id
    reason: str


class ReadSince(Message):
    """An entry of another run that read the changed value since: whom to tell (G3)."""

    entry: Id
    run: Id
    resource: str
    through: Literal["uses", "arguments"]


class ReadSinceIncomplete(Message):
    """An agent whose memory does not, or may not, pass through the recorder: there the list may be incomplete."""

    agent: str
    through_recorder: Literal["no", "unknown"]


class SideEffect(Message):
    """What taking an entry back will also do, and cannot avoid."""

    entry: Id
    text: str


class Suggestion(Message):
    """A remedy or a correcting write that the plan suggests (G4, J14)."""

    kind: Literal["remedy", "correction"]
    entry: Id
    text: str


class Plan(Message):
    """A Reversal Plan: what "take that back" means, before anybody agreed to it (G4)."""

    id: Id
    campaign: Id
    digest: str
    status: PlanStatus
    as_of: Instant
    targets: list[Id]
    steps: list[Step] = Field(default_factory=list)
    consequences: list[Consequence] = Field(default_factory=list)
    not_reversible: list[NotReversible] = Field(default_factory=list)
    unresolved: list[UnresolvedEntry] = Field(default_factory=list)
    read_since: list[ReadSince] = Field(default_factory=list)
    read_since_incomplete: list[ReadSinceIncomplete] = Field(default_factory=list)
    side_effects: list[SideEffect] = Field(default_factory=list)
    suggestions: list[Suggestion] = Field(default_factory=list)


class PlanRequest(Request):
    """`POST /v1/campaigns/{c}/plans`: take back these entries, this interaction, or this run."""

    entries: list[Id] | None = Field(default=None, min_length=1, max_length=1000)
    interaction: Id | None = None
    run: Id | None = None

    @model_validator(mode="after")
    def _one_target(self) -> PlanRequest:
        if sum(value is not None for value in (self.entries, self.interaction, self.run)) != 1:
            raise ValueError("name exactly one of entries, interaction or run")
        return self


class PlanDecision(Request):
    """`POST /v1/plans/{p}/decision`: a person's word on exactly the plan that *digest* names (G5, G6)."""

    decision: Literal["approve", "reject"]
    digest: str
    leave_out: list[Id] = Field(default_factory=list)
    override: list[Id] = Field(default_factory=list)
    fields: dict[str, list[str]] = Field(default_factory=dict)
    reason: Text = ""
    category: Category | None = None


class UndoRequest(Request):
    """`POST …/interactions/{i}/undo`: plan and decision in one."""

    reason: Text = ""
    category: Category | None = None


class ReceiptPart(Message):
    """One record of an entry that changed several."""

    resource: str
    outcome: StepOutcome
    expected_version: str | None = None
    version_before: str | None = None
    version_after: str | None = None


class Receipt(Message):
    """What became of one step (G10)."""

    entry: Id
    reversal: Id | None = None
    outcome: StepOutcome
    detail: str | None = None
    expected_version: str | None = None
    version_before: str | None = None
    version_after: str | None = None
    parts: list[ReceiptPart] | None = None
    fields: list[str] | None = None
    approved_by: str
    authority: str
    side_effects: list[str] = Field(default_factory=list)
    at: Instant


class ReversalRecord(Message):
    """The whole of a reversal, appended and never edited, signed (G10)."""

    id: Id
    plan: Id
    digest: str
    campaign: Id
    approved_by: str
    authority: str
    reason: str
    category: Category | None = None
    left_out: list[Id] = Field(default_factory=list)
    overridden: list[Id] = Field(default_factory=list)
    foreseen_side_effects: list[SideEffect] = Field(default_factory=list)
    receipts: list[Receipt] = Field(default_factory=list)
    suggestions: list[Suggestion] = Field(default_factory=list)
    signature: Any = None
    at: Instant
