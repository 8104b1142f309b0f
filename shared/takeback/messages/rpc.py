"""What the other services ask the recorder for over the bus (design.md, Services)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from takeback.messages.base import Id, Instant, Name, Request, Text
from takeback.messages.events import Actor
from takeback.messages.plan import PlanDecision
from takeback.messages.review import Lapsed

AppendType = Literal[
    "plan.proposed", "plan.decided", "link.confirmed", "review.acknowledged", "window.reminded", "window.escalated",
    "window.lapsed",
]  # fmt: skip
"""Facts that others take in and the recorder makes facts of."""


class HeadsRequest(Request):
    """``rpc.recorder.heads``: how far the campaign's streams are published, and what is not settled yet."""

    campaign: Id
    moved_since: datetime | None = None


class RecordsRequest(Request):
    """``rpc.recorder.records``: the published records of a stream above *after*, in order."""

    stream: Id
    after: int = Field(default=0, ge=0)
    limit: int = Field(default=500, ge=1, le=1000)


class StreamsRequest(Request):
    """``rpc.recorder.streams``: a page of all streams, of one campaign or of all (for a rebuild)."""

    campaign: Id | None = None
    cursor: str | None = None
    limit: int = Field(default=500, ge=1, le=1000)


class ObserveItem(Request):
    """A record to look at; without *resource*, all records that the entry changed."""

    entry: Id
    resource: str | None = None
    server: str | None = None


class ObserveRequest(Request):
    """``rpc.recorder.observe``: records as they are now, each with its own answer or its own error."""

    campaign: Id
    items: list[ObserveItem] = Field(max_length=2000)


class AppendRequest(Request):
    """``rpc.recorder.append``: *id* is the record's, made by the caller: sent again it is written once."""

    id: Id
    type: AppendType
    campaign: Id
    by: Actor
    body: dict[str, Any]


class RefusedRequest(Request):
    """``rpc.recorder.refused``: another service answered a member 403 ``not-authorised`` over *what*."""

    campaign: Id
    by: Actor
    what: Text
    entry: Id | None = None


class WindowBody(Request):
    """Which window a ``window.*`` record is about."""

    run: Id
    entry: Id
    undo_by: Instant


class WindowToldBody(WindowBody):
    """The body of ``window.reminded`` and ``window.escalated``: what was accepted, for whom, when (N4)."""

    recipient: Name
    delivered_at: Instant


class WindowLapsedBody(WindowBody):
    """The body of ``window.lapsed``: how a window went by (N4)."""

    how: Lapsed
    acknowledged_by: Name | None = None


class DecidedBody(PlanDecision):
    """The body of ``plan.decided``; *request* names the one that came with an Idempotency-Key."""

    plan: Id
    campaign: Id | None = None
    request: str | None = None
