"""The window of an entry: from the call to `undoBy`, while it can be taken back (N3, N4). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from takeback.messages.entry import Entry
from takeback.messages.review import Lapsed
from takeback.standing import standing

_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Window:
    """An entry that can be taken back until *undo_by*; *opened_at* is when its call was concluded."""

    entry: str
    run: str
    campaign: str
    principal: str
    opened_at: datetime
    undo_by: datetime
    undo_authority: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about the window of *entry* that was accepted for *recipient* at *delivered_at*."""

    entry: str
    kind: Literal["reminder", "escalation"]
    recipient: str
    delivered_at: datetime


@dataclass(frozen=True, slots=True)
class Lapse:
    """How the window of *entry* that closed at *undo_by* went by, as the journal has it."""

    entry: str
    undo_by: datetime
    how: Lapsed
    acknowledged_by: str | None


def window_of(entry: Entry) -> Window | None:
    """The window that *entry* has as it stands, whatever the hour; None where nothing can close.

    The same classification as in a plan and a review (G11): what is never a step has no window.
    """
    undo_by = entry.undo.undo_by
    if entry.kind in ("read", "reversal") or undo_by is None or standing(entry, _BEFORE_ALL).place != "step":
        return None
    return Window(
        entry=entry.id,
        run=entry.run,
        campaign=entry.campaign,
        principal=entry.principal,
        opened_at=entry.concluded_at or entry.created_at or undo_by,
        undo_by=undo_by,
        undo_authority=entry.undo.undo_authority,
    )
