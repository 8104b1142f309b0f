"""Where an entry stands when somebody asks to take it back: pure, one answer for the plan and for the review (G4, G11)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, assert_never

from takeback.messages.entry import Entry

Place = Literal["step", "notReversible", "unresolved", "reverted", "unlisted"]
Reason = Literal["declared", "window_closed", "unknown", "failed"]


@dataclass(frozen=True, slots=True)
class Standing:
    """*place* is the section it belongs to; a read is unlisted. *reason* is set for notReversible alone."""

    place: Place
    detail: str = ""
    reason: Reason | None = None
    needs_person: Literal["no_version", "ui"] | None = None


def standing(entry: Entry, now: datetime) -> Standing:
    """Where *entry* stands at *now*.

    Unknown is irreversible (J9), a broken declaration is unresolved and never irreversible (J11), an effect without a
    version and a way through a screen need a person (J10, P2).
    """
    if entry.kind == "read":
        return Standing("unlisted")
    match entry.status:
        case "awaiting_approval" | "denied" | "expired" | "failed":
            return Standing("notReversible", f"It was never carried out ({entry.status}).", "failed")
        case "pending" | "in_doubt" | "reverting" | "unverified":
            return Standing("unresolved", f"Its outcome is not known yet ({entry.status}).")
        case "reverted":
            return Standing("reverted")
        case "committed":
            return _of_committed(entry, now)
        case _:
            assert_never(entry.status)


def _of_committed(entry: Entry, now: datetime) -> Standing:
    undo = entry.undo
    if entry.unresolved:
        return Standing("unresolved", "; ".join(f"{broken.field}: {broken.reason}" for broken in entry.unresolved))
    if undo.kind == "none":
        return Standing("notReversible", undo.why or "The tool server declares that it cannot be undone.", "declared")
    if undo.kind == "unknown":
        return Standing("notReversible", undo.why or "Nobody has declared how it could be undone.", "unknown")
    if undo.undo_by is not None and undo.undo_by <= now:
        return Standing("notReversible", f"Its window closed at {undo.undo_by.isoformat()}.", "window_closed")
    if undo.via == "ui":
        return Standing("step", needs_person="ui")
    return Standing("step", needs_person=None if _is_versioned(entry) else "no_version")


def _is_versioned(entry: Entry) -> bool:
    effects = entry.effects or ([entry.effect] if entry.effect is not None else [])
    changed = [effect for effect in effects if effect.resource]
    return bool(changed) and all(effect.version is not None for effect in changed)
