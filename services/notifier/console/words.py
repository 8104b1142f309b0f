"""How the console says things: times, states, values. Pure; the templates know these as filters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_HALF_DAY, _WEEK = 12 * _HOUR, 7
_SHORT = 120

STATES: dict[str, tuple[str, str]] = {
    # of entries
    "awaiting_approval": ("clock", "waits for a person"),
    "pending": ("clock", "under way"),
    "committed": ("check", "done"),
    "failed": ("cross", "failed"),
    "denied": ("ban", "denied"),
    "expired": ("ban", "nobody answered"),
    "in_doubt": ("question", "in doubt"),
    "unverified": ("question", "not verified"),
    "reverting": ("undo", "being taken back"),
    "reverted": ("undo", "taken back"),
    # of runs
    "open": ("dot", "open"),
    "paused": ("pause", "paused"),
    "closed": ("square", "closed"),
    # of plans
    "proposed": ("pencil", "proposed"),
    "rejected": ("ban", "rejected"),
    "stale": ("clock", "out of date"),
    "approved": ("clock", "approved, about to start"),
    "executing": ("undo", "under way"),
    "completed": ("check", "completed"),
    "partial": ("warning", "completed in part"),
    # of receipts
    "already_reverted": ("undo", "was taken back before"),
    "conflict": ("warning", "left alone: changed since"),
    "left_out": ("dash", "left out"),
    "blocked": ("ban", "blocked"),
    "authority_lost": ("ban", "authority lost"),
}
"""The icon and the word of every state: they are told apart without colour."""

TIERS = {
    "critical": "critical impact",
    "high": "high impact",
    "medium": "medium impact",
    "low": "low impact",
}
WHY_NOT = {
    "declared": "its tool says that it cannot be undone",
    "window_closed": "its window has closed",
    "unknown": "nobody has declared how",
    "failed": "it was never carried out",
}
PLAIN_DETAILS = (
    "The tool server declares that it cannot be undone.",
    "Nobody has declared how it could be undone.",
)
"""What a plan says where nothing but the reason is known: the reason's own words are enough."""
SOURCES = {
    "declared": "the tool server declared it",
    "host": "given with the call",
    "inferred": "the same value appears in both",
    "default": "nothing is declared, so it may",
    "confirmed": "a person confirmed it",
    "target": "you asked for it",
}
CATEGORIES = {
    "misread": "misread",
    "hallucinated": "made up",
    "unwanted": "not wanted",
    "other": "other",
    "unsaid": "no reason category",
}
LAPSED = {
    "quietly": "closed quietly: nobody was reminded",
    "after_reminder": "closed after a reminder",
    "after_escalation": "closed after an escalation",
    "after_acknowledgement": "closed after somebody had seen it",
}


def moment(value: str | datetime) -> datetime:
    """An instant from the wire, in UTC."""
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return at.astimezone(UTC)


def clock(value: str | datetime) -> str:
    """An instant as people write it: ``Mon 30 Nov, 14:05 UTC``."""
    at = moment(value)
    return f"{at:%a} {at.day} {at:%b}, {at:%H:%M} UTC"


def span(seconds: float) -> str:
    """A duration in the largest unit that says enough: ``2 h``, ``3 days``, ``a moment``."""
    seconds = abs(seconds)
    if seconds < _MINUTE:
        return "less than a minute"
    if seconds < 2 * _HOUR:
        return f"{int(seconds // _MINUTE)} min"
    if seconds < 2 * _DAY:
        return f"{int(seconds // _HOUR)} h"
    return f"{int(seconds // _DAY)} days"


def closes(until: str | datetime | None, now: datetime) -> str:
    """When a window closes, or that it has: ``closes in 2 h``, ``closed 5 min ago``, ``no deadline``."""
    if until is None:
        return "no deadline"
    left = (moment(until) - now).total_seconds()
    return f"closes in {span(left)}" if left > 0 else f"closed {span(left)} ago"


def duty(window: Mapping[str, Any], now: datetime, reader: str) -> str:
    """Who is there before *window* closes, to follow when it closes: ``before Anna is back on Monday``, ``after your duty ends
    in 2 h``. Empty where whoever is reminded is on duty when it closes, or nobody knows.
    """
    until, known = window.get("undoBy"), window.get("duty", ())
    reminded = [one for one in known if one["told"] == "reminder"]
    if until is None or not reminded or moment(until) <= now:
        return ""
    one = min(reminded, key=_from)
    is_back, duty_is = (
        ("you are back", "your duty") if one["sub"] == reader else (f"{one['sub']} is back", f"{one['sub']}'s duty")
    )
    if one["onDutyFrom"] is None:
        away = "while you are away" if one["sub"] == reader else f"while {one['sub']} is away"
        said = away if one["backAt"] is None else f"before {is_back} {_day(one['backAt'], now, one['zone'])}"
        return said + _called(known, now, reader)
    if not _is_there(one, now):
        return f"after {is_back} {_day(one['onDutyFrom'], now, one['zone'])}"
    ends = one["onDutyUntil"]
    return "" if moment(ends) >= moment(until) else f"after {duty_is} ends {_day(ends, now, one['zone'])}"


def _called(known: Sequence[Mapping[str, Any]], now: datetime, reader: str) -> str:
    """Who else could act meanwhile: the first of those who are called to be on duty."""
    there = [one for one in known if one["told"] == "escalation" and one["onDutyFrom"] is not None]
    if not there:
        return ""
    one = min(there, key=_from)
    who = "you are" if one["sub"] == reader else f"{one['sub']} is"
    if _is_there(one, now):
        return f"; {who} on duty"
    return f"; {who} back {_day(one['onDutyFrom'], now, one['zone'])}"


def _is_there(one: Mapping[str, Any], now: datetime) -> bool:
    """Whether somebody is on duty already, or in a moment: two machines' clocks may differ."""
    return (_from(one) - now).total_seconds() < _MINUTE


def _from(one: Mapping[str, Any]) -> datetime:
    return datetime.max.replace(tzinfo=UTC) if one["onDutyFrom"] is None else moment(one["onDutyFrom"])


def _day(value: str, now: datetime, zone: str) -> str:
    """An instant to come as people say it, by the days of *zone*: ``in 3 h``, ``tomorrow``, ``on Monday``, ``on 12 Jan``."""
    left = (moment(value) - now).total_seconds()
    if left < _HALF_DAY:
        return f"in {span(left)}"
    there = ZoneInfo(zone)
    day, today = moment(value).astimezone(there).date(), now.astimezone(there).date()
    match (day - today).days:
        case 0:
            return f"in {span(left)}"
        case 1:
            return "tomorrow"
        case days if days < _WEEK:
            return f"on {day:%A}"
        case _:
            parts = (str(day.day), f"{day:%b}", *([str(day.year)] if day.year != today.year else []))
            return "on " + "\u00a0".join(parts)  # a date is read in one line


def ago(value: str | datetime, now: datetime) -> str:
    """How long ago something happened."""
    passed = (now - moment(value)).total_seconds()
    return "just now" if passed < _MINUTE else f"{span(passed)} ago"


def urgency(until: str | None, now: datetime) -> str:
    """How soon a window closes: ``soon`` (within two hours), ``today``, ``later``, ``never``."""
    if until is None:
        return "never"
    left = (moment(until) - now).total_seconds()
    return "soon" if left < 2 * _HOUR else "today" if left < _DAY else "later"


def value(anything: Any) -> str:
    """A value of a field, short enough for a line; what is sealed is said to be."""
    if isinstance(anything, dict) and anything.get("sealed") is True:
        return "secret"
    if anything is None:
        return "nothing"
    if isinstance(anything, bool):
        return "yes" if anything else "no"
    if isinstance(anything, str):
        text = anything or "(empty)"
    elif isinstance(anything, list) and not anything:
        text = "(none)"
    elif isinstance(anything, list) and all(isinstance(one, str | int | float) for one in anything):
        text = ", ".join(str(one) or "(empty)" for one in anything)
    else:
        text = json.dumps(anything, ensure_ascii=False)
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def document(anything: Any) -> str:
    """A value as indented JSON, whole."""
    return json.dumps(anything, indent=2, ensure_ascii=False)


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 step``, ``3 steps``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share: ``4 %``, ``0.5 %``."""
    points = share * 100
    return f"{points:.0f} %" if points >= 10 or points == int(points) else f"{points:.1f} %"


def state_icon(state: str) -> str:
    """The icon of a state."""
    return STATES.get(state, ("dot", state))[0]


def state_word(state: str) -> str:
    """The word of a state."""
    return STATES.get(state, ("dot", state.replace("_", " ")))[1]


def effects(of: Mapping[str, Any]) -> list[Any]:
    """All that an entry, or a preview, says it changes or used: the one effect where it names no others."""
    return of.get("effects") or ([of["effect"]] if of.get("effect") else [])


def spaced(name: str) -> str:
    """An operation's name as words: ``modify_creature`` → ``modify creature``."""
    return name.replace("_", " ")


def sentence(text: str) -> str:
    """A reason as a sentence of its own."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
