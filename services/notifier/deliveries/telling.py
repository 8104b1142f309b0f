"""Who is told of an event: the webhooks and chats that want its type, and people by e-mail (N6, N7, G10).

Called in the transaction that saw the event for the first time: a replay or a rebuild does not come by.
"""

from __future__ import annotations

from typing import Any

from notifier import outgoing
from notifier.deliveries import ledger, ways
from notifier.feed import Transaction, Wanted
from takeback.messages.events import ApprovalRequested, Event, ReversalCompleted
from takeback.subjects import TYPE_PREFIX


async def tell(connection: Transaction, campaign: str, event: Event, wanted: Wanted) -> None:
    """Has everybody told of *event* who is to be, once the transaction commits; *wanted*: by which webhooks and chats."""
    type_ = event.type.removeprefix(TYPE_PREFIX)
    for name, channel in wanted:
        if channel == "webhook":
            await ledger.put(connection, channel, campaign, name, type_, event.id, event.wire())
        elif ways.told_by_event(type_):
            await ledger.put(connection, channel, campaign, name, type_, event.id, event.data)
    if type_ == "approval.requested":
        asked = ApprovalRequested.model_validate(event.data)
        await _write(connection, "approval.requested", campaign, asked.asked, asked.approval, event.data)
    elif type_ == "reversal.completed":
        completed = ReversalCompleted.model_validate(event.data)
        people = [completed.record.approved_by, *await _principals(connection, completed)]
        await _write(connection, "reversal.completed", campaign, people, completed.plan, event.data)


async def _write(
    connection: Transaction, kind: outgoing.Kind, campaign: str, people: list[str], about: str, payload: Any
) -> None:
    for sub in dict.fromkeys(people):
        await outgoing.enqueue(connection, kind, campaign, sub, outgoing.message_id(kind, about, sub), payload)


async def _principals(connection: Transaction, completed: ReversalCompleted) -> list[str]:
    entries = [receipt.entry for receipt in completed.record.receipts]
    rows = await connection.fetch(
        "select distinct runs.principal from entries join runs on runs.run = entries.run where entry = any($1)", entries
    )
    return sorted(row["principal"] for row in rows)
