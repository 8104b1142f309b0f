"""What of a run can still be taken back: pure, from the entries as they stand and the clock that is handed in (N1, N2, N4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from notifier.windows import Lapse, Notice
from takeback.messages.entry import Entry
from takeback.messages.review import (
    Acknowledgement,
    ClosedWindow,
    Deadline,
    Lapsed,
    NeverReversible,
    OpenWindow,
    RevertedItem,
    Review,
    UnresolvedItem,
)
from takeback.standing import Standing, standing

_NEVER = datetime.max.replace(tzinfo=UTC)
_CLAIMED = ("committed", "reverting")


@dataclass(frozen=True, slots=True)
class Run:
    """A run as a review needs it."""

    id: str
    campaign: str
    agent: str
    principal: str
    status: Literal["open", "paused", "closed"]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a run's windows beside its entries: *notices* that were accepted for somebody, *lapses* that the
    journal has, and *deadlines*, by entry: when somebody is told, and who is on duty."""

    notices: Sequence[Notice] = ()
    lapses: Mapping[str, Lapse] = field(default_factory=dict)
    deadlines: Mapping[str, Deadline] = field(default_factory=dict)


def review(
    run: Run,
    entries: Sequence[Entry],
    acknowledged: Sequence[Acknowledgement],
    now: datetime,
    known: Known = Known(),
) -> Review:
    """The review of *run* at *now*; *entries* in the order of their intents.

    Every entry that changed something, or tried to, stands in exactly one section, the same as in a plan made at that
    moment (G11). Reads stand in none; a reversal shows in the entry that it took back.
    """
    by_place: dict[str, list[tuple[Entry, Standing]]] = {}
    for entry in entries:
        if entry.kind == "reversal":
            continue
        found = standing(entry, now)
        by_place.setdefault(found.reason if found.reason == "window_closed" else found.place, []).append((entry, found))
    opened = [_open(entry, found, acknowledged, now, known) for entry, found in by_place.get("step", [])]
    closed = [_closed(entry, acknowledged, known) for entry, _ in by_place.get("window_closed", [])]
    return Review(
        run=run.id,
        campaign=run.campaign,
        principal=run.principal,
        agent=run.agent,
        status=run.status,
        as_of=now,
        open=sorted(opened, key=lambda window: window.undo_by or _NEVER),
        closed=sorted(closed, key=lambda window: window.undo_by),
        not_reversible=[
            NeverReversible(**_item(entry), reason=found.reason, detail=found.detail)
            for entry, found in by_place.get("notReversible", [])
        ],
        unresolved=[
            UnresolvedItem(**_item(entry), reason=found.detail) for entry, found in by_place.get("unresolved", [])
        ],
        reverted=[
            RevertedItem(
                **_item(entry),
                reverted_by=entry.reverted_by,
                reverted_at=entry.reverted_at,
                reverted_by_person=entry.reverted_by_person,
            )
            for entry, _ in by_place.get("reverted", [])
        ],
        acknowledged=list(acknowledged),
    )


def with_unsettled(entries: Sequence[Entry], unsettled: Iterable[Entry]) -> list[Entry]:
    """*entries* as the events told them, with what only the recorder knows: what it has begun and not concluded.

    Of an entry that is in both the later state counts; what has an outcome by now was concluded after it was asked for.
    """
    known = {entry.id: entry for entry in entries}
    for entry in unsettled:
        held = known.get(entry.id)
        if held is None or held.status == "awaiting_approval" or (held.status, entry.status) == _CLAIMED:
            known[entry.id] = entry
    return sorted(known.values(), key=lambda entry: int(entry.label.removeprefix("e")))


def how_it_lapsed(
    entry: str, undo_by: datetime, acknowledged: Iterable[Acknowledgement], notices: Iterable[Notice] = ()
) -> tuple[Lapsed, str | None]:
    """How the window of *entry* went by, and who had acknowledged it (N4).

    It follows what happened before the window closed: what was acknowledged, or accepted for somebody, only later changes
    nothing. The strongest counts: acknowledged, else escalated, else reminded.
    """
    by = _acknowledged_by(entry, undo_by, acknowledged)
    if by is not None:
        return "after_acknowledgement", by
    reached = {notice.kind for notice in notices if notice.entry == entry and notice.delivered_at < undo_by}
    if "escalation" in reached:
        return "after_escalation", None
    return ("after_reminder" if "reminder" in reached else "quietly"), None


def _open(
    entry: Entry, found: Standing, acknowledged: Sequence[Acknowledgement], now: datetime, known: Known
) -> OpenWindow:
    undo_by = entry.undo.undo_by
    deadline = known.deadlines.get(entry.id)
    return OpenWindow(
        **_item(entry),
        undo_by=undo_by,
        seconds_left=None if undo_by is None else int((undo_by - now).total_seconds()),
        via=entry.undo.via,
        needs_person=found.needs_person,
        acknowledged=_acknowledged_by(entry.id, _NEVER, acknowledged) is not None,
        remind_at=deadline.remind_at if deadline else None,
        escalate_at=deadline.escalate_at if deadline else None,
        duty=deadline.duty if deadline else [],
    )


def _closed(entry: Entry, acknowledged: Sequence[Acknowledgement], known: Known) -> ClosedWindow:
    undo_by = entry.undo.undo_by
    assert undo_by is not None
    recorded = known.lapses.get(entry.id)
    if recorded is not None and recorded.undo_by == undo_by:
        lapsed, by = recorded.how, recorded.acknowledged_by
    else:
        lapsed, by = how_it_lapsed(entry.id, undo_by, acknowledged, known.notices)
    return ClosedWindow(**_item(entry), undo_by=undo_by, lapsed=lapsed, acknowledged_by=by)


def _acknowledged_by(entry: str, before: datetime, acknowledged: Iterable[Acknowledgement]) -> str | None:
    """The first person who acknowledged *entry* before its window closed."""
    return next((one.by for one in acknowledged if entry in one.entries and one.at < before), None)


def _item(entry: Entry) -> dict[str, Any]:
    return {
        "entry": entry.id,
        "label": entry.label,
        "operation": entry.operation,
        "server": entry.server,
        "resource": entry.effect.resource if entry.effect else None,
    }
