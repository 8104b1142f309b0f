"""Events on the bus: CloudEvents 1.0 in structured JSON, and the data of each type (contract.md, Bus)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from takeback.messages.base import Id, Instant, Message
from takeback.messages.campaign import Memory, Operation, Policy, Role, Serialize
from takeback.messages.entry import Category, Entry
from takeback.messages.plan import Plan, Receipt, ReversalRecord
from takeback.messages.review import AuthorityChanged, Lapsed, ReviewReady


class Event(Message):
    """A CloudEvent. `type` carries the prefix ``io.github.takeback.``; `subject` is the stream it was appended to."""

    model_config = ConfigDict(alias_generator=None)

    specversion: Literal["1.0"] = "1.0"
    id: Id
    source: str
    type: str
    subject: str | None = None
    time: Instant
    datacontenttype: Literal["application/json"] = "application/json"
    data: dict[str, Any]


class Chained(Message):
    """Every record's event says where it stands in its stream's chain, so that a gap or a restore shows (J13)."""

    stream: Id
    seq: int
    after: int
    hash: str
    previous_hash: str


class HostLinks(Message):
    """What the host said a call builds on (G1); from a `service` token it replaces the default link."""

    uses: list[str] = Field(default_factory=list)
    depends_on: list[Id] = Field(default_factory=list)
    replaces_default: bool = False


class Matchable(Message):
    """Keyed hashes of the values that may link two entries by being equal (G1, inferred)."""

    arguments: list[str] = Field(default_factory=list)
    results: list[str] = Field(default_factory=list)


class EntryResource(Message):
    """A record that an entry changed or used, at a version."""

    resource: str
    role: Literal["changes", "uses"]
    version: str | None = None


class Actor(Message):
    """Who did it, and in what capacity (S14)."""

    sub: str
    kind: Literal["human", "agent", "service", "system"]
    authority: str | None = None


class EntryData(Chained):
    """Data of every ``entry.*`` event: the whole entry as of that record."""

    entry: Entry
    host: HostLinks = HostLinks()
    matchable: Matchable = Matchable()
    resources: list[EntryResource] = Field(default_factory=list)
    plan: Id | None = None


class EntryHint(Message):
    """Data of ``entry.pending``: a call still runs after a second. A hint without a place in a stream; it may be lost."""

    entry: Entry


class RunOpened(Chained):
    """Data of ``run.opened``."""

    run: Id
    campaign: Id
    agent: str
    model: str
    principal: str
    by: Actor


class RunClosed(Chained):
    """Data of ``run.closed``."""

    run: Id
    campaign: Id
    by: Actor


class RunHeld(RunClosed):
    """Data of ``run.paused`` and ``run.resumed``: the run holds still so that a plan can be made, or goes on."""


class CampaignOpened(Chained):
    """Data of ``campaign.opened``."""

    campaign: Id
    name: str
    serialize: Serialize
    owner: str


class MemberChanged(Chained):
    """Data of ``member.changed``; a role of null says that the member left."""

    campaign: Id
    sub: str
    role: Role | None
    email: str | None = None
    by: Actor


class AgentChanged(Chained):
    """Data of ``agent.changed``."""

    campaign: Id
    name: str
    memory: Memory
    operations: list[str] | None = None
    principals: list[str] | None = None
    by: Actor


class ServerChanged(Chained):
    """Data of ``server.changed``: the operations as they were pinned."""

    campaign: Id
    name: str
    transport: str
    operations: list[Operation]
    by: Actor


class PolicyChanged(Chained):
    """Data of ``policy.changed``."""

    campaign: Id
    policy: Policy
    by: Actor


class CalendarChanged(Chained):
    """Data of ``calendar.changed``."""

    campaign: Id
    sub: str
    calendar: dict[str, Any]
    by: Actor


class ApprovalRequested(Chained):
    """Data of ``approval.requested``: a call waits for a person (P6)."""

    approval: Id
    entry: Entry
    asked: list[str]
    why: str
    expires_at: Instant


class ApprovalDecided(Chained):
    """Data of ``approval.decided``."""

    approval: Id
    entry: Id
    decision: Literal["approve", "deny", "expire"]
    by: Actor
    reason: str = ""
    category: Category | None = None


class LinkConfirmed(Chained):
    """Data of ``link.confirmed`` (G2)."""

    campaign: Id
    link: Id
    entry: Id
    depends_on: Id
    by: Actor


class PlanProposed(Chained):
    """Data of ``plan.proposed``: the plan as a whole, with what was observed for it."""

    plan: Plan
    observed: list[dict[str, Any]] = Field(default_factory=list)
    by: Actor


class PlanDecided(Chained):
    """Data of ``plan.decided``."""

    plan: Id
    campaign: Id
    digest: str
    decision: Literal["approve", "reject"]
    by: Actor
    leave_out: list[Id] = Field(default_factory=list)
    override: list[Id] = Field(default_factory=list)
    fields: dict[str, list[str]] = Field(default_factory=dict)
    reason: str = ""
    category: Category | None = None
    request: str | None = None
    """Names the request that decided it, for one that came with an Idempotency-Key."""


class ReversalStep(Chained):
    """Data of ``reversal.step``: one receipt."""

    plan: Id
    campaign: Id
    receipt: Receipt


class ReversalCompleted(Chained):
    """Data of ``reversal.completed``."""

    plan: Id
    campaign: Id
    record: ReversalRecord


class ReviewAcknowledged(Chained):
    """Data of ``review.acknowledged``: a person has seen what can still be taken back (N4)."""

    campaign: Id
    run: Id
    entries: list[Id] | None = None
    by: Actor


class WindowTold(Chained):
    """A message about the window of *entry* was accepted for *recipient* at `deliveredAt`, before `undoBy` or after it (N4)."""

    campaign: Id
    run: Id
    entry: Id
    undo_by: Instant
    recipient: str
    delivered_at: Instant
    by: Actor


class WindowReminded(WindowTold):
    """Data of ``window.reminded``: its reminder reached somebody (N3)."""


class WindowEscalated(WindowTold):
    """Data of ``window.escalated``: nobody had acknowledged it, and somebody else was reached (N3)."""


class WindowLapsed(Chained):
    """Data of ``window.lapsed``: the window of *entry* closed at `undoBy`, and how it went by (N4)."""

    campaign: Id
    run: Id
    entry: Id
    undo_by: Instant
    how: Lapsed
    acknowledged_by: str | None = None
    by: Actor


class InteractionReverted(Message):
    """Data of ``broadcast.interaction_reverted`` (N5): a client takes the interaction's messages out of its feed."""

    type: Literal["interaction_reverted"] = "interaction_reverted"
    invocation_id: Id
    tool_name: str
    interaction: str | None
    interaction_complete: bool
    source: Literal["system"] = "system"


class BroadcastSent(Message):
    """Data of ``broadcast.sent``: what every client is told, with its provenance (N5)."""

    source: Literal["ai_tool_execution", "user", "system"]
    payload: Any
    entry: Id | None = None
    by: str | None = None


EVENT_DATA: dict[str, type[Message]] = {
    "run.opened": RunOpened,
    "run.closed": RunClosed,
    "run.paused": RunHeld,
    "run.resumed": RunHeld,
    "entry.pending": EntryHint,
    "entry.committed": EntryData,
    "entry.failed": EntryData,
    "entry.in_doubt": EntryData,
    "entry.denied": EntryData,
    "entry.reverted": EntryData,
    "entry.remedied": EntryData,
    "approval.requested": ApprovalRequested,
    "approval.decided": ApprovalDecided,
    "link.confirmed": LinkConfirmed,
    "campaign.opened": CampaignOpened,
    "member.changed": MemberChanged,
    "agent.changed": AgentChanged,
    "server.changed": ServerChanged,
    "policy.changed": PolicyChanged,
    "calendar.changed": CalendarChanged,
    "plan.proposed": PlanProposed,
    "plan.decided": PlanDecided,
    "reversal.step": ReversalStep,
    "reversal.completed": ReversalCompleted,
    "review.ready": ReviewReady,
    "review.acknowledged": ReviewAcknowledged,
    "review.authority_changed": AuthorityChanged,
    "window.reminded": WindowReminded,
    "window.escalated": WindowEscalated,
    "window.lapsed": WindowLapsed,
    "broadcast.sent": BroadcastSent,
    "broadcast.interaction_reverted": InteractionReverted,
}
"""The data model of each event type, by its short type."""
