"""An entry of the journal and its parts, as everybody outside the recorder sees them (contract.md, Recorder)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from takeback.messages.base import Id, Instant, Message, Name, Request, Text

Tier = Literal["critical", "high", "medium", "low"]
EntryKind = Literal["call", "read", "reversal", "remedy", "correction"]
EntryStatus = Literal[
    "awaiting_approval", "denied", "expired", "pending", "committed", "failed", "in_doubt", "reverting", "reverted",
    "unverified",
]  # fmt: skip
"""`unverified` is a reversal entry's alone: its undo was claimed done and reading back did not show it (G8)."""
UndoKind = Literal["none", "compensate", "unknown"]
Via = Literal["api", "ui"]
Category = Literal["misread", "hallucinated", "unwanted", "other"]


class FieldChange(Message):
    """One field that a call changed: its value before and after."""

    field: str
    old: Any = None
    new: Any = None


class Before(Message):
    """The state of a record right before the call (J2, J8)."""

    version: str | None = None
    fields: dict[str, Any] = Field(default_factory=dict)


class Effect(Message):
    """What a call did to one record, and what it read (J8). `before` is null where the record did not exist."""

    resource: str | None = None
    before: Before | None = None
    version: str | None = None
    changes: list[FieldChange] = Field(default_factory=list)
    uses: list[str] = Field(default_factory=list)
    may_change: list[str] = Field(default_factory=list)
    side_effects: list[str] = Field(default_factory=list)


class Undo(Message):
    """How an entry can be taken back, and until when (J8). The compensation token never leaves the recorder."""

    kind: UndoKind = "unknown"
    via: Via = "api"
    undo_by: Instant | None = None
    if_version: str | None = None
    if_versions: dict[str, str] | None = None
    undo_authority: str | None = None
    side_effects: list[str] = Field(default_factory=list)
    why: str | None = None


class Unresolved(Message):
    """A declaration that could not be read: kept, named, and never the reason to hide a valid entry (J11)."""

    field: str
    reason: str


class Entry(Message):
    """One tool call in the journal (J5)."""

    id: Id
    label: str
    run: Id
    campaign: Id
    interaction: str | None = None
    server: str
    operation: str
    tier: Tier
    kind: EntryKind
    arguments: Any = None
    result: Any = None
    status: EntryStatus
    principal: str
    agent: str
    model: str
    effect: Effect | None = None
    effects: list[Effect] = Field(default_factory=list)
    undo: Undo
    snapshot: Any = None
    preview_diff: Any = None
    broadcasts: list[Any] = Field(default_factory=list)
    unresolved: list[Unresolved] = Field(default_factory=list)
    reverts: Id | None = None
    reverted_by: Id | None = None
    reverted_at: Instant | None = None
    reverted_by_person: str | None = None
    revert_reason: str | None = None
    remedies: Id | None = None
    corrects: Id | None = None
    approval: Id | None = None
    txn_id: Id | None = None
    policy_digest: str | None = None
    created_at: Instant
    concluded_at: Instant | None = None


class CallRequest(Request):
    """`POST /v1/runs/{r}/calls`: one tool call of an agent, through the one hook point (J1)."""

    server: Name
    operation: Name
    arguments: dict[str, Any] = Field(default_factory=dict)
    agent: Name | None = None
    model: Name | None = None
    principal: Name | None = None
    interaction: Id | None = None
    uses: list[Name] = Field(default_factory=list, max_length=100)
    depends_on: list[Id] = Field(default_factory=list, max_length=100)
    remedies: Id | None = None
    corrects: Id | None = None
    preview: Id | None = None


class PreviewRequest(Request):
    """`POST /v1/runs/{r}/previews`: the tool server's dry run of a call (P7)."""

    server: Name
    operation: Name
    arguments: dict[str, Any] = Field(default_factory=dict)


class ResolutionRequest(Request):
    """`POST /v1/entries/{e}/resolution`: a person settles what no observation could (J7)."""

    outcome: Literal["happened", "did-not-happen"]
    reason: Text = Field(min_length=1)


class Asked(Message):
    """Who was asked for an approval, and when (P6)."""

    sub: str
    at: Instant


class Approval(Message):
    """A call that waits for a person, or waited (P6). *why*: the reasons, which only people are told (P10)."""

    id: Id
    entry: Id
    status: Literal["pending", "approved", "denied", "expired"]
    why: list[str] | None = None
    preview: Any = None
    snapshot: Any = None
    asked: list[Asked] = Field(default_factory=list)
    decided_by: str | None = None
    authenticated_by: str | None = None
    signature: Any = None
    expires_at: Instant


class ApprovalDecision(Request):
    """`POST /v1/approvals/{a}/decision`."""

    decision: Literal["approve", "deny"]
    reason: Text = ""
    category: Category | None = None
    assertion: Any = None
