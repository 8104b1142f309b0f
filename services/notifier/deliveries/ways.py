"""The ways that a message to a person takes: by e-mail, and to the chats that want to hear of its kind (N3, N7)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from notifier.deliveries import ledger, targets
from notifier.feed import Transaction

CHAT_TYPES: Mapping[str, str] = {
    "review.ready": "review.ready",
    "approval.requested": "approval.requested",
    "reversal.completed": "reversal.completed",
    "window.reminded": "window.reminder",
    "window.escalated": "window.escalation",
}
"""What a chat can be told, by the event type that it subscribes to, and what the message about it is called."""
_AHEAD = {"window.reminder": "window.reminded", "window.escalation": "window.escalated"}
"""Messages that a chat gets itself: their event says that they were accepted."""


async def take(
    connection: Transaction, kind: str, campaign: str, recipient: str, message: str, payload: Mapping[str, Any]
) -> None:
    """Has *recipient* (a sub) told *payload* once the transaction commits; *message* is its id."""
    deadlines = [datetime.fromisoformat(one["undoBy"]) for one in payload.get("windows", [])]
    await ledger.put_mail(
        connection, campaign, recipient, kind, message, payload,
        message=message, deadline=min(deadlines, default=None),
    )  # fmt: skip
    if (type_ := _AHEAD.get(kind)) is not None:
        for name, channel in await targets.subscribed(connection, campaign, type_):
            if channel == "chat":
                await ledger.put(connection, channel, campaign, name, kind, message, payload, message=message)


def told_by_event(type_: str) -> bool:
    """Whether a chat that subscribed to *type_* is told by its event."""
    return CHAT_TYPES.get(type_) == type_
