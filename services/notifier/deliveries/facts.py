"""What the news of a delivery is, as the projection stands when it is sent: what was taken back meanwhile is said so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import asyncpg
from pydantic import TypeAdapter

from notifier import projection
from notifier.deliveries.ledger import Delivery
from notifier.deliveries.letters import Item, News
from takeback import json
from takeback.messages.base import Instant
from takeback.messages.entry import Entry
from takeback.standing import standing

_INSTANT: TypeAdapter[datetime] = TypeAdapter(Instant)
_RECEIPT_STATES = {
    "reverted": "taken back",
    "already_reverted": "was taken back before",
    "conflict": "left alone: it was changed since",
    "unverified": "not verified: look at it",
    "failed": "failed: it still stands",
    "in_doubt": "in doubt: look at it",
    "left_out": "left out",
    "blocked": "blocked: it still stands",
    "authority_lost": "left alone: the authority was lost",
}
_PASSED = {
    "reverted": "taken back already",
    "notReversible": "cannot be taken back any more",
    "unresolved": "not settled yet",
    "unlisted": "not settled yet",
}


class Facts:
    """Reads the projection; what is not there (a stream that is read again) is told as the payload has it."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def address(self, campaign: str, sub: str) -> str | None:
        """Where *sub* gets e-mail in *campaign*."""
        found: str | None = await self._pool.fetchval(
            "select email from members where campaign = $1 and sub = $2", campaign, sub
        )
        return found

    async def name(self, campaign: str) -> str:
        """What *campaign* is called, its id where that is not known."""
        found: str | None = await self._pool.fetchval("select name from campaigns where campaign = $1", campaign)
        return found or campaign

    async def now(self) -> datetime:
        """The database's clock."""
        at: datetime = await self._pool.fetchval("select clock_timestamp()")
        return at

    async def news(self, delivery: Delivery) -> News:
        """What *delivery* tells."""
        payload: dict[str, Any] = json.loads(delivery.payload)
        match delivery.type:
            case "approval.requested":
                return _approval(payload)
            case "reversal.completed":
                return await self._reversal(payload)
            case "review.ready":
                return await self._review(payload)
            case "role.changed":
                return _role(delivery.campaign, payload)
            case "calendar.unreadable":
                return _calendar(delivery.campaign, payload)
            case _:
                return await self._windows(delivery, payload)

    async def _review(self, payload: Mapping[str, Any]) -> News:
        now = await self.now()
        entries = await projection.changes_of(self._pool, payload["run"])
        items = [
            _item(entry, now) for entry in entries if entry.kind != "reversal" and standing(entry, now).place == "step"
        ]
        return News("review.ready", payload["agent"], _review_page(payload["run"]), tuple(items))

    async def _reversal(self, payload: Mapping[str, Any]) -> News:
        record = payload["record"]
        entries = await self._entries([receipt["entry"] for receipt in record["receipts"]])
        items = []
        for receipt in record["receipts"]:
            entry = entries.get(receipt["entry"])
            state = _RECEIPT_STATES.get(receipt["outcome"], receipt["outcome"])
            items.append(
                Item(entry.label, entry.operation, _resource(entry), None, state)
                if entry else Item(receipt["entry"], "", None, None, state)
            )  # fmt: skip
        done = sum(receipt["outcome"] == "reverted" for receipt in record["receipts"])
        detail = f"{record['approvedBy']} took back {done} of {len(items)} call{'' if len(items) == 1 else 's'}"
        return News(
            "reversal.completed", record["approvedBy"], f"/console/plans/{record['plan']}/record", tuple(items), detail
        )

    async def _windows(self, delivery: Delivery, payload: Mapping[str, Any]) -> News:
        named = {one["entry"]: one for one in payload["windows"]}
        entries = await self._entries(named)
        now = await self.now()
        items = [
            _item(entry, now)
            if (entry := entries.get(entry_id)) is not None
            else Item("", entry_id, None, _INSTANT.validate_python(window["undoBy"]))
            for entry_id, window in named.items()
        ]
        agents = sorted({entry.agent for entry in entries.values()})
        runs = {entry.run for entry in entries.values()}
        page = _review_page(runs.pop()) if len(runs) == 1 else _queue_page(delivery.campaign)
        about: Any = delivery.type
        return News(about, ", ".join(agents[:3]) or "an agent", page, tuple(items))

    async def _entries(self, ids: Iterable[str]) -> dict[str, Entry]:
        rows = await self._pool.fetch("select entry, view from entries where entry = any($1)", list(ids))
        return {row["entry"]: Entry.model_validate(json.loads(row["view"])) for row in rows}


def _approval(payload: Mapping[str, Any]) -> News:
    entry = Entry.model_validate(payload["entry"])
    item = Item(entry.label, f"{entry.server}/{entry.operation}", _resource(entry), None, "waits for a person")
    page = f"/console/approvals/{payload['approval']}"
    until = _INSTANT.validate_python(payload["expiresAt"])
    return News("approval.requested", entry.agent, page, (item,), payload["why"], until)


def _role(campaign: str, payload: Mapping[str, Any]) -> News:
    sub, was, role = payload["sub"], payload["was"], payload["role"]
    now_is = f"is no longer {was}" if role is None else f"was {was} and is now {role}"
    items = tuple(
        Item("run", one["run"], f"{one['open']} open", _INSTANT.validate_python(one["nextDeadline"]))
        for one in payload["runs"]
    )
    return News("role.changed", sub, _queue_page(campaign), items, f"{sub} {now_is}, by {payload['by']}")


def _calendar(campaign: str, payload: Mapping[str, Any]) -> News:
    detail = f"{payload['feed']}: {payload['problem']}. Until it can, what was read last counts."
    return News("calendar.unreadable", payload["sub"], f"/console/campaigns/{campaign}", (), detail)


def _item(entry: Entry, now: datetime) -> Item:
    found = standing(entry, now)
    if found.place == "step" or found.reason == "window_closed":
        return Item(entry.label, entry.operation, _resource(entry), entry.undo.undo_by)
    return Item(entry.label, entry.operation, _resource(entry), None, _PASSED[found.place])


def _resource(entry: Entry) -> str | None:
    return entry.effect.resource if entry.effect else None


def _review_page(run: str) -> str:
    return f"/console/runs/{run}/review"


def _queue_page(campaign: str) -> str:
    return f"/console/campaigns/{campaign}/reviews"
