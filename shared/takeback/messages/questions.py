"""Questions of the journal (U3): how often a tool is called per model version, what is taken back and why, what never is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from takeback.messages.base import Id, Instant, Message
from takeback.messages.entry import UndoKind
from takeback.messages.review import OpenWindow

Why = Literal["misread", "hallucinated", "unwanted", "other", "unsaid"]
"""The category beside the reason of a reversal; `unsaid` where the person gave none."""


class CallsOf(Message):
    """How often one operation was called by one model version, and what became of the calls."""

    server: str
    operation: str
    model: str
    calls: int
    committed: int = 0
    reverted: int = 0
    failed: int = 0
    denied: int = 0
    unsettled: int = 0


class Calls(Message):
    """`GET …/questions/calls`: reads and writes by agents; reversals are no calls."""

    campaign: Id
    as_of: Instant
    total: int
    items: list[CallsOf] = Field(default_factory=list)


class TakenBack(Message):
    """Of the *happened* changes *reverted* were taken back: *share* is their quotient, and *why* counts the categories."""

    happened: int
    reverted: int
    share: float
    why: dict[Why, int] = Field(default_factory=dict)


class TakenBackByModel(TakenBack):
    """The same of one model version."""

    model: str


class TakenBackByOperation(TakenBack):
    """The same of one operation."""

    server: str
    operation: str


class NeverUndone(Message):
    """An operation that changed something and was never once taken back; *undo* says whether it could have been."""

    server: str
    operation: str
    calls: int
    undo: UndoKind


class Reversals(TakenBack):
    """`GET …/questions/reversals`: writes that happened, by agents."""

    campaign: Id
    as_of: Instant
    by_model: list[TakenBackByModel] = Field(default_factory=list)
    by_operation: list[TakenBackByOperation] = Field(default_factory=list)
    never_undone: list[NeverUndone] = Field(default_factory=list)


class QueuedReview(Message):
    """A run of which something can still be taken back: *open* windows, *next* the one that closes first."""

    run: Id
    agent: str
    principal: str
    status: Literal["open", "paused", "closed"]
    open: int
    acknowledged: int
    next: OpenWindow
