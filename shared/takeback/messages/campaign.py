"""Campaigns, members, agents, tool servers, policy and runs as they are asked for (contract.md, Recorder)."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from takeback.messages.base import Id, Instant, Message, Name, Request, ShownName
from takeback.messages.entry import Tier, UndoKind, Via
from takeback.visible import unseen

Role = Literal["owner", "approver", "member"]
Memory = Literal["yes", "no", "unknown"]
Serialize = Literal["campaign", "run", "resource", "none"]
Money = Annotated[str, StringConstraints(pattern=r"^\d{1,15}(\.\d{1,6})?$")]
LONGEST_SECONDS = 10 * 366 * 86_400
_MOST_RULES, _LONGEST_OPERATION = 10_000, 401
_DURATION = TypeAdapter(Annotated[timedelta, Field(strict=False)])
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]


class MemberRequest(Request):
    """`PUT …/members/{sub}`: the role that a person or a service holds in the campaign."""

    role: Role
    email: Annotated[str, StringConstraints(max_length=320, pattern=r"^[^@\s]+@[^@\s]+$")] | None = None


class NewMember(MemberRequest):
    """A member named when the campaign is opened."""

    sub: ShownName


class CampaignRequest(Request):
    """`POST /v1/campaigns`: the caller becomes owner; `serialize` chooses what one lock covers (J19)."""

    name: ShownName
    serialize: Serialize = "campaign"
    members: list[NewMember] = Field(default_factory=list, max_length=1000)


class AgentRequest(Request):
    """`PUT …/agents/{name}`: the allow-list of an agent (P10) and whether its memory is visible here (G4)."""

    memory: Memory = "unknown"
    operations: list[Name] | None = None
    principals: list[Name] | None = None


class CalendarRequest(Request):
    """`PUT …/calendars/{sub}`: when a person is on duty (P3)."""

    zone: Name
    weekly: dict[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], list[tuple[str, str]]]
    holidays: str | None = None
    absences: str | None = None


class McpHttp(Request):
    """A tool server over MCP's streamable HTTP."""

    transport: Literal["mcp"]
    url: Annotated[str, StringConstraints(pattern=r"^https?://", max_length=2000)] | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    command: Name | None = None
    args: list[str] = Field(default_factory=list, max_length=100)
    env: dict[str, str] = Field(default_factory=dict)
    manifest: Any = None

    @model_validator(mode="after")
    def _one_of_both(self) -> McpHttp:
        if (self.url is None) == (self.command is None):
            raise ValueError("an MCP server has either a url or a command")
        if self.command is not None and self.headers:
            raise ValueError("headers go to a url; what is started by a command reads its secrets from env")
        if self.url is not None and (self.args or self.env):
            raise ValueError("args and env are a command's; a server with a url is told its secrets in headers")
        return self


class NatsServer(Request):
    """A tool server on the bus."""

    transport: Literal["nats"]
    subject: Annotated[str, StringConstraints(pattern=r"^tools\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$", max_length=200)]
    manifest: Any = None


class HttpServer(Request):
    """A plain HTTP server; its manifest says which operations it has."""

    transport: Literal["http"]
    url: Annotated[str, StringConstraints(pattern=r"^https?://", max_length=2000)]
    headers: dict[str, str] = Field(default_factory=dict)
    manifest: Any


ServerRequest = Annotated[McpHttp | NatsServer | HttpServer, Field(discriminator="transport")]
"""`PUT …/servers/{name}`."""


class MoneyPolicy(Request):
    """Caps on what a run and a period may spend (P5)."""

    currency: Currency
    per_run: Money | None = None
    per_period: Money | None = None
    period: str = "P1D"
    over: Literal["ask", "deny"] = "ask"


class Reminders(Request):
    """When a person is reminded of a window, and who is called when nobody reacts (N3)."""

    lead_seconds: int = Field(gt=0)
    escalate_after_seconds: int = Field(gt=0)
    escalate_to: Name


class Policy(Request):
    """The campaign's policy, short form (P1 to P5, P9). What it does not say is decided by reversibility."""

    operations: dict[str, Literal["allow", "ask", "deny"]] = Field(default_factory=dict)
    require_exercised: bool = False
    min_window_seconds: int | None = Field(default=None, ge=0)
    on_snapshot_failure: Literal["ask", "proceed", "deny"] = "ask"
    money: MoneyPolicy | None = None
    reminders: Reminders | None = None


def out_of_bounds(policy: Policy) -> list[str]:
    """What of *policy* is too much, for the door that takes it (422). What an older journal holds is read all the same."""
    told = policy.reminders
    seconds = {
        "minWindowSeconds": policy.min_window_seconds or 0,
        "reminders.leadSeconds": told.lead_seconds if told else 0,
        "reminders.escalateAfterSeconds": told.escalate_after_seconds if told else 0,
    }
    wrong = [
        f"{name}: at most {LONGEST_SECONDS} (ten years)" for name, value in seconds.items() if value > LONGEST_SECONDS
    ]
    if told and unseen(told.escalate_to):
        wrong.append("reminders.escalateTo: it holds a character that cannot be seen")
    if policy.money and not _is_period(policy.money.period):
        wrong.append("money.period: write an ISO 8601 duration of up to ten years, such as P1D")
    if len(policy.operations) > _MOST_RULES or any(len(name) > _LONGEST_OPERATION for name in policy.operations):
        wrong.append(f"operations: at most {_MOST_RULES:,}, each of at most {_LONGEST_OPERATION} characters")
    return wrong


def _is_period(text: str) -> bool:
    try:
        return timedelta() < _DURATION.validate_python(text) <= timedelta(seconds=LONGEST_SECONDS)
    except ValidationError:
        return False


class RunRequest(Request):
    """`POST …/runs`: one agent begins to work for one principal."""

    agent: ShownName
    model: ShownName
    principal: ShownName
    money_cap: Money | None = None


class UndoDeclaration(Message):
    """How an operation's calls can be taken back, as declared before any call; *window* is an ISO 8601 duration."""

    kind: UndoKind = "unknown"
    via: Via = "api"
    window: timedelta | None = None
    undo_authority: str | None = None
    side_effects: list[str] = Field(default_factory=list)


class Operation(Message):
    """An operation of a tool server as it was pinned (J15)."""

    operation: str
    tier: Tier
    undo: UndoDeclaration
    source: Literal["declared", "manifest", "none"]
    exercised: bool = False
    pin: str
    read_only: bool = False
    resource: str | None = None


class Run(Message):
    """One agent at work for one principal in a campaign."""

    id: Id
    campaign: Id
    agent: str
    model: str
    principal: str
    status: Literal["open", "paused", "closed"]
    opened_by: str
    opened_at: Instant | None = None
    closed_at: Instant | None = None
    worst_case: Any = None
