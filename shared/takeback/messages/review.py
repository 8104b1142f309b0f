"""Reviews, acknowledgements, broadcasts and tickets of the live streams (contract.md, Notifier)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from takeback.messages.base import Id, Instant, Message, Request
from takeback.messages.entry import Via

Lapsed = Literal["quietly", "after_reminder", "after_escalation", "after_acknowledgement"]
"""How a window went by (N4): the strongest thing that really reached somebody before it closed."""


class ReviewItem(Message):
    """What a review says of every entry that it lists."""

    entry: Id
    label: str
    operation: str
    server: str
    resource: str | None = None


class DutyBefore(Message):
    """When somebody who is told of a window is on duty before it closes, by the calendar that counts for them (P3, N3).

    `told`: by a reminder, or by an escalation when nobody reacts. They are on duty from `onDutyFrom` on, for the last time
    until `onDutyUntil`; both are null where they are not on duty before it closes. `backAt` is the next duty from then on;
    null where there is none within 400 days. `zone` is the one that their days are reckoned in.
    """

    sub: str
    told: Literal["reminder", "escalation"]
    zone: str
    on_duty_from: Instant | None = None
    on_duty_until: Instant | None = None
    back_at: Instant | None = None


class OpenWindow(ReviewItem):
    """An entry that can be taken back now (N1). `secondsLeft` is null where no deadline was declared.

    `remindAt` and `escalateAt` say when somebody is told, or was; null where nobody will be, or nobody has looked yet (N3).
    `duty` lists whoever is told and has a calendar; agents are not told it.
    """

    undo_by: Instant | None = None
    seconds_left: int | None = None
    via: Via = "api"
    needs_person: Literal["no_version", "ui"] | None = None
    acknowledged: bool = False
    remind_at: Instant | None = None
    escalate_at: Instant | None = None
    duty: list[DutyBefore] = Field(default_factory=list)


class Deadline(Message):
    """An open window by its entry: when it closes, when somebody is told, and who of them is on duty before (N3, P3)."""

    entry: Id
    undo_by: Instant
    remind_at: Instant | None = None
    escalate_at: Instant | None = None
    duty: list[DutyBefore] = Field(default_factory=list)


class ClosedWindow(ReviewItem):
    """An entry whose window went by, and how (N2, N4)."""

    undo_by: Instant
    lapsed: Lapsed
    acknowledged_by: str | None = None


class NeverReversible(ReviewItem):
    """An entry that cannot be taken back whatever the hour; the reasons are those of a plan (G4)."""

    reason: Literal["declared", "unknown", "failed"]
    detail: str


class UnresolvedItem(ReviewItem):
    """An entry that nobody can decide about yet (J11)."""

    reason: str


class RevertedItem(ReviewItem):
    """An entry that was taken back already: by which reversal, when, and by whom."""

    reverted_by: Id | None = None
    reverted_at: Instant | None = None
    reverted_by_person: str | None = None


class Acknowledgement(Message):
    """A person said that they have seen these entries (N4)."""

    by: str
    authority: str | None = None
    at: Instant
    entries: list[Id]


class Review(Message):
    """What of a run can still be taken back, until when; computed as of `asOf`, the database's clock (N1, N2)."""

    run: Id
    campaign: Id
    principal: str
    agent: str
    status: Literal["open", "paused", "closed"]
    as_of: Instant
    open: list[OpenWindow] = Field(default_factory=list)
    closed: list[ClosedWindow] = Field(default_factory=list)
    not_reversible: list[NeverReversible] = Field(default_factory=list)
    unresolved: list[UnresolvedItem] = Field(default_factory=list)
    reverted: list[RevertedItem] = Field(default_factory=list)
    acknowledged: list[Acknowledgement] = Field(default_factory=list)


class AcknowledgementRequest(Request):
    """`POST /v1/runs/{r}/review/acknowledgement`: these entries, or all whose window is open now."""

    entries: list[Id] | None = Field(default=None, min_length=1, max_length=1000)


class BroadcastRequest(Request):
    """`POST /v1/campaigns/{c}/broadcasts`: a person tells every client something (N5)."""

    payload: Any


class Broadcast(Message):
    """The answer to a broadcast: the id of its event."""

    id: Id


class Ticket(Message):
    """`POST /v1/tickets`: opens one live stream, once, until `expiresAt`."""

    ticket: Annotated[str, StringConstraints(min_length=1)]
    expires_at: Instant


class ReviewReady(Message):
    """Data of ``review.ready``: a run closed, and its principal may look at what can still be taken back (N1)."""

    run: Id
    campaign: Id
    principal: str
    agent: str
    open: int
    next_deadline: Instant | None = None


class AuthorityChanged(Message):
    """Data of ``review.authority_changed``: a role changed while a run can still be taken back (N9).

    *sub* was *was* and is *role* now, null for somebody who left. `open` windows of the run, the first of which closes at
    `nextDeadline`, can be taken back by `by`.
    """

    run: Id
    campaign: Id
    principal: str
    sub: str
    was: str
    role: str | None
    open: int
    next_deadline: Instant
    by: list[str]
