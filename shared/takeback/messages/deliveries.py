"""Webhooks, chats and the ledger of deliveries, as an owner sees them (contract.md, Notifier)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from takeback.messages.base import Id, Instant, Message, Request

Channel = Literal["email", "webhook", "chat"]
DeliveryStatus = Literal["waiting", "accepted", "dead", "not_configured"]


class WebhookRequest(Request):
    """`PUT /v1/campaigns/{c}/webhooks/{name}`: event types (short, or `*`) for an https URL or an apprise URL of a chat."""

    url: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    types: list[Annotated[str, StringConstraints(min_length=1, max_length=100)]] = Field(min_length=1, max_length=100)


class Webhook(Message):
    """A target. `secret` is there only in the answer that made it; `disabled` says why nothing is sent any more."""

    name: Id
    channel: Channel
    url: str
    types: list[str]
    secret: str | None = None
    disabled: str | None = None
    created_at: Instant


class Delivery(Message):
    """One thing that a target is told. `id` is what its receiver drops a repeat by; a digest carries that of `batch`.

    `not_configured`: there is no mail server, or the person has no address; like a dead one it is sent when somebody says so.
    """

    id: Id
    channel: Channel
    target: str
    type: str
    status: DeliveryStatus
    attempts: int
    error: str | None = None
    batch: Id | None = None
    created_at: Instant
    next_attempt_at: Instant | None = None
    concluded_at: Instant | None = None
