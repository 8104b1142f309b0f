"""What everybody is told, as events: pure, with ids that follow from what happened, so that nothing is told twice (N5).

Provenance stands on each: `ai_tool_execution` came with a tool's result, `user` from a person, `system` from a reversal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from takeback.messages.base import Message
from takeback.messages.entry import Entry, EntryStatus
from takeback.messages.events import BroadcastSent, Event, InteractionReverted
from takeback.messages.review import Review, ReviewReady
from takeback.subjects import TYPE_PREFIX


def interaction_reverted(entry: Entry, complete: bool, at: datetime) -> Event:
    """The one announcement of a verified reversal of *entry*; *complete*: its whole interaction is taken back.

    Its id follows from the reversal: an entry that was made good again and taken back anew is told anew.
    """
    data = InteractionReverted(
        invocation_id=entry.id,
        tool_name=entry.operation,
        interaction=entry.interaction,
        interaction_complete=complete,
    )
    happened = "interaction_reverted", entry.id, entry.reverted_by or at.isoformat()
    return _event("broadcast.interaction_reverted", happened, entry.campaign, entry.run, at, data)


def interaction_complete(others: Iterable[tuple[str, EntryStatus]]) -> bool:
    """Whether an interaction is wholly taken back, from the (kind, status) of each of its entries.

    Only writes count, and only those that happened or may have happened: one that is committed still stands, and of
    one in doubt nobody knows, so it is not said to be gone.
    """
    return not any(
        kind not in ("read", "reversal") and status in ("committed", "reverting", "pending", "in_doubt", "unverified")
        for kind, status in others
    )


def of_tool(entry: Entry, at: datetime) -> list[Event]:
    """The broadcasts that the tool's own result asked for."""
    return [
        _event(
            "broadcast.sent",
            ("tool", entry.id, str(number)),
            entry.campaign,
            entry.run,
            at,
            BroadcastSent(source="ai_tool_execution", payload=payload, entry=entry.id, by=entry.agent),
        )
        for number, payload in enumerate(entry.broadcasts)
    ]


def of_person(campaign: str, by: str, payload: Any, key: str, at: datetime) -> Event:
    """A person's broadcast; *key* tells one of theirs from another."""
    data = BroadcastSent(source="user", payload=payload, by=by)
    return _event("broadcast.sent", ("user", campaign, by, key), campaign, campaign, at, data)


def review_ready(review: Review, at: datetime) -> Event:
    """That *review* can be looked at, once for each run."""
    data = ReviewReady(
        run=review.run,
        campaign=review.campaign,
        principal=review.principal,
        agent=review.agent,
        open=len(review.open),
        next_deadline=review.open[0].undo_by if review.open else None,
    )
    return _event("review.ready", ("review.ready", review.run), review.campaign, review.run, at, data)


def _event(
    short_type: str, happened: tuple[str, ...], campaign: str, subject: str, at: datetime, data: Message
) -> Event:
    digest = hashlib.sha256("\0".join(happened).encode()).hexdigest()[:32]
    return Event(
        id=f"ntf_{digest}",
        source=f"/campaigns/{campaign}",
        type=TYPE_PREFIX + short_type,
        subject=subject,
        time=at,
        data=data.wire(),
    )
