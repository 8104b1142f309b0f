"""Every HTTP door of the contract as a value: what `schemas/openapi.yaml` is generated from.

The services read bodies by hand (guarded JSON first), so their routes alone do not say what they take and answer; a test
holds this table against the routes of the three services, both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field

from takeback.messages.base import MOST_NAMED, Id, Instant, Message
from takeback.messages.campaign import (
    AgentRequest,
    CalendarRequest,
    CampaignRequest,
    MemberRequest,
    Memory,
    Operation,
    Policy,
    Role,
    Run,
    RunRequest,
    Serialize,
    ServerRequest,
)
from takeback.messages.deliveries import Delivery, Webhook, WebhookRequest
from takeback.messages.entry import (
    Approval,
    ApprovalDecision,
    CallRequest,
    Effect,
    Entry,
    PreviewRequest,
    ResolutionRequest,
)
from takeback.messages.plan import Link, Plan, PlanDecision, PlanRequest, ReversalRecord, UndoRequest
from takeback.messages.questions import Calls, QueuedReview, Reversals
from takeback.messages.review import (
    Acknowledgement,
    AcknowledgementRequest,
    Broadcast,
    BroadcastRequest,
    Deadline,
    Review,
    Ticket,
)
from takeback.messages.speeds import ReviewSpeeds

Item = TypeVar("Item")
Service = Literal["recorder", "planner", "notifier"]


class Page(Message, Generic[Item]):
    """A listing; `next` is the cursor of the page after it, absent on the last one."""

    items: list[Item]
    next: str | None = None


class Problem(Message):
    """A refusal (RFC 9457): what happened, what was and was not changed, what to do. Further members may follow."""

    type: str
    title: str
    status: int
    detail: str


class CampaignMember(Message):
    """A member as other members see them; agents see no address."""

    sub: str
    role: Role
    email: str | None = None


class ListedCampaign(Message):
    """A campaign that the caller is a member of, and the caller's role there."""

    id: Id
    name: str
    serialize: Serialize
    role: Role


class NamedAgent(Message):
    """An agent that the campaign has named; absent lists mean all."""

    name: str
    memory: Memory
    operations: list[str] | None = None
    principals: list[str] | None = None


class Campaign(Message):
    """A campaign with who and what is in it."""

    id: Id
    name: str
    serialize: Serialize
    members: list[CampaignMember] = Field(default_factory=list)
    agents: list[NamedAgent] = Field(default_factory=list)
    servers: list[str] = Field(default_factory=list)


class Server(Message):
    """A tool server with its operations as they are pinned."""

    name: str
    transport: str
    operations: list[Operation] = Field(default_factory=list)


class Called(Message):
    """What became of a call that was forwarded."""

    entry: Entry
    result: Any = None


class Asked(Message):
    """A call that waits for a person: poll its entry."""

    entry: Entry
    approval: Approval


class Authority(Message):
    """Who asked for a preview, on whose behalf."""

    sub: str
    principal: str


class Preview(Message):
    """What a call would do, pinned to the record's version and the authority it was asked under (P7)."""

    id: Id
    effect: Effect | None = None
    effects: list[Effect] = Field(default_factory=list)
    version: str | None = None
    authority: Authority
    decision: Literal["allow", "ask", "deny"]


class SecurityEvent(Message):
    """Somebody was refused."""

    at: Instant
    sub: str
    kind: str
    what: str


class Graph(Message):
    """A run's entries and what depends on what."""

    entries: list[Entry]
    links: list[Link]


class Decided(Message):
    """A plan after its decision, with its Reversal Record once it has ended."""

    plan: Plan
    record: ReversalRecord | None = None


class Undone(Message):
    """An interaction that was taken back in one call, or why there was nothing to do."""

    reverted: bool
    skip_reason: Literal["already_reverted", "not_committed"] | None = None
    plan: Plan | None = None
    record: ReversalRecord | None = None


@dataclass(frozen=True, slots=True)
class Door:
    """One method of one path. *answers* maps a status to its body's model; *problems* are the refusals of its own.

    *query* maps a parameter to what it says. *media* other than JSON is named where the answer is no JSON document.
    """

    service: Service
    method: Literal["GET", "PUT", "POST", "DELETE"]
    path: str
    summary: str
    answers: dict[int, Any]
    request: Any = None
    query: dict[str, str] | None = None
    problems: tuple[int, ...] = ()
    media: str = "application/json"


_CURSOR = {"cursor": "`next` of the page before"}
_LAST = {"ticket": "a single-use ticket in place of a token", "lastEventId": "resume after this id"}
_C = "/v1/campaigns/{campaign}"
_R = "/v1/runs/{run}"
_NDJSON = "application/x-ndjson"

DOORS: tuple[Door, ...] = (
    # Recorder
    Door("recorder", "POST", "/v1/campaigns", "Open a campaign; you become its owner", {201: Campaign}, CampaignRequest),
    Door("recorder", "GET", "/v1/campaigns", "The campaigns that you are a member of, newest first",
         {200: Page[ListedCampaign]}, query=_CURSOR),
    Door("recorder", "GET", _C, "A campaign with who and what is in it", {200: Campaign}),
    Door("recorder", "PUT", _C + "/members/{sub}", "Give somebody a role", {200: CampaignMember}, MemberRequest),
    Door("recorder", "DELETE", _C + "/members/{sub}", "Take somebody's role away", {204: None}),
    Door("recorder", "GET", _C + "/policy", "The policy; people only", {200: Policy}),
    Door("recorder", "PUT", _C + "/policy", "Set the policy", {200: Policy}, Policy),
    Door("recorder", "PUT", _C + "/agents/{name}", "Name an agent and what it may use", {200: NamedAgent}, AgentRequest),
    Door("recorder", "PUT", _C + "/calendars/{sub}", "When a person is on duty", {200: CalendarRequest}, CalendarRequest),
    Door("recorder", "PUT", _C + "/servers/{name}", "Connect a tool server and pin it", {200: Server}, ServerRequest),
    Door("recorder", "GET", _C + "/servers/{name}", "A tool server's operations as they are pinned", {200: Server}),
    Door("recorder", "GET", _C + "/security-log", "Who was refused what; owners only", {200: Page[SecurityEvent]},
         query=_CURSOR),
    Door("recorder", "GET", _C + "/approvals", "Approvals of the campaign", {200: Page[Approval]},
         query={"status": "pending, approved, denied or expired", **_CURSOR}),
    Door("recorder", "GET", _C + "/record", "The campaign's own Run Record", {200: None}, media=_NDJSON),
    Door("recorder", "POST", _C + "/runs", "Open a run", {201: Run}, RunRequest),
    Door("recorder", "GET", _C + "/runs", "The campaign's runs, newest first", {200: Page[Run]}, query=_CURSOR),
    Door("recorder", "GET", _R, "A run", {200: Run}),
    Door("recorder", "GET", _R + "/entries", "A run's entries in the order of their intents", {200: Page[Entry]},
         query={"order": "`oldest` first, or `newest`", "limit": "at most so many, up to 200", **_CURSOR}),
    Door("recorder", "GET", _R + "/record", "The Run Record: a line per record, then the signed head", {200: None},
         media=_NDJSON),
    Door("recorder", "POST", _R + "/close", "Close a run", {200: Run}),
    Door("recorder", "POST", _R + "/pause", "Pause a run, so that a plan holds still", {200: Run}),
    Door("recorder", "POST", _R + "/resume", "Go on with a paused run", {200: Run}),
    Door("recorder", "POST", _R + "/calls", "Make a tool call: journaled before it runs", {200: Called, 202: Asked},
         CallRequest, problems=(409, 502, 504)),
    Door("recorder", "POST", _R + "/previews", "What a call would do", {200: Preview}, PreviewRequest),
    Door("recorder", "GET", "/v1/entries/{entry}", "An entry", {200: Entry}),
    Door("recorder", "POST", "/v1/entries/{entry}/resolution", "Settle a doubt; people only", {200: Entry},
         ResolutionRequest, problems=(409,)),
    Door("recorder", "GET", "/v1/approvals/{approval}", "An approval", {200: Approval}),
    Door("recorder", "POST", "/v1/approvals/{approval}/decision", "Decide an approval; people only", {200: Approval},
         ApprovalDecision, problems=(409,)),
    # Planner
    Door("planner", "POST", _C + "/plans", "Propose to take something back", {201: Plan}, PlanRequest),
    Door("planner", "GET", "/v1/plans/{plan}", "A plan", {200: Plan}),
    Door("planner", "GET", "/v1/plans/{plan}/record", "A plan's Reversal Record", {200: ReversalRecord}),
    Door("planner", "POST", "/v1/plans/{plan}/decision", "Decide a plan; people only", {200: Decided, 202: Decided},
         PlanDecision, query={"wait": "seconds to wait for its end, up to 60"}, problems=(409,)),
    Door("planner", "POST", _C + "/interactions/{interaction}/undo", "Plan and decision in one",
         {200: Undone, 202: Undone}, UndoRequest, problems=(409,)),
    Door("planner", "GET", _R + "/graph", "What of a run depends on what", {200: Graph},
         query={"skip": "leave out so many entries of its beginning", "limit": "at most so many entries"}),
    Door("planner", "POST", "/v1/links/{link}/confirm", "Confirm a link; people only", {200: Link}),
    # Notifier
    Door("notifier", "GET", _R + "/review", "What can still be taken back, until when", {200: Review}),
    Door("notifier", "POST", _R + "/review/acknowledgement", "Say that you have seen it; people only",
         {201: Acknowledgement}, AcknowledgementRequest),
    Door("notifier", "GET", _C + "/reviews", "The runs that can still be taken back, by the earliest deadline",
         {200: Page[QueuedReview]}, query={"run": f"these runs alone, up to {MOST_NAMED}; may be repeated", **_CURSOR}),
    Door("notifier", "GET", _C + "/windows", "When the windows of these entries close, and who is on duty before",
         {200: Page[Deadline]},
         query={"entry": f"an entry, up to {MOST_NAMED}; repeated. What has no open window is left out"}),
    Door("notifier", "GET", _C + "/questions/calls", "How often a tool is called per model version", {200: Calls}),
    Door("notifier", "GET", _C + "/questions/reversals", "What share is taken back and why, and what never is",
         {200: Reversals}),
    Door("notifier", "GET", _C + "/questions/reviews", "How fast reviews happen, and the shortest window that follows from it",
         {200: ReviewSpeeds}),
    Door("notifier", "POST", _C + "/broadcasts", "Tell every client something; people only", {201: Broadcast},
         BroadcastRequest),
    Door("notifier", "GET", _C + "/webhooks", "The campaign's webhooks and chats; owners only", {200: Page[Webhook]}),
    Door("notifier", "PUT", _C + "/webhooks/{name}", "Send event types to a URL; an owner, in person", {200: Webhook},
         WebhookRequest),
    Door("notifier", "DELETE", _C + "/webhooks/{name}", "Send nothing there any more", {204: None}),
    Door("notifier", "GET", _C + "/deliveries", "The ledger of deliveries, the newest first; owners only",
         {200: Page[Delivery]}, query={"status": "waiting, accepted, dead or not_configured", **_CURSOR}),
    Door("notifier", "POST", _C + "/deliveries/{delivery}/retry", "Send a dead letter again, under the id that it had",
         {202: Delivery}, problems=(409,)),
    Door("notifier", "POST", "/v1/tickets", "A ticket that opens one live stream", {201: Ticket}),
    Door("notifier", "GET", _C + "/stream", "The live stream: data is a CloudEvent, see asyncapi.yaml", {200: None},
         query=_LAST, media="text/event-stream"),
    Door("notifier", "GET", _C + "/ws", "The same over WebSocket: JSON messages {id, event, data}", {101: None},
         query=_LAST),
)  # fmt: skip
"""In the order of contract.md."""
