"""What a person is told in words: pure, from the news and the clock that is handed in (N1, N3, N7).

Several pieces of news make one letter. What comes from a campaign (names, operations, records, reasons) is somebody else's
text: it is brought to one line without control characters before it stands anywhere.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

_NEVER = datetime.max.replace(tzinfo=UTC)
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LONGEST = 200
_MAX_SUBJECT = 140
_PASSED = (
    "These windows closed before you could be told. They cannot be taken back through Takeback any more; a remedy can "
    "still be proposed."
)
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")

About = Literal[
    "review.ready", "window.reminder", "window.escalation", "window.passed", "role.changed", "calendar.unreadable",
    "approval.requested", "reversal.completed",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """One call in a letter: what it did to which record, and, instead of a deadline, what became of it."""

    label: str
    what: str
    resource: str | None = None
    undo_by: datetime | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class News:
    """One thing to tell; *page* is the console's path that shows it, *detail* a sentence more."""

    about: About
    who: str
    page: str
    items: tuple[Item, ...] = ()
    detail: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """An item in words."""

    text: str
    when: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of news about one page."""

    heading: str
    sentence: str
    lines: tuple[Line, ...]
    link: str


@dataclass(frozen=True, slots=True)
class Letter:
    """What is sent: *subject* is one line; *link* is where everything can be done."""

    subject: str
    sections: tuple[Section, ...]
    campaign: str


def compose(campaign: str, news: Sequence[News], console: str, now: datetime) -> Letter:
    """One letter of all *news* of the campaign called *campaign*, the most pressing first; *console* is the console's URL."""
    merged = sorted(_merged(news), key=lambda one: (_first_deadline(one, now), one.about, one.page))
    sections = tuple(_section(one, console.rstrip("/"), now) for one in merged)
    subject = f"{one_line(campaign, 40)}: {sections[0].heading}"
    if len(sections) > 1:
        subject += f", and {len(sections) - 1} more {'thing' if len(sections) == 2 else 'things'}"
    return Letter(one_line(subject, _MAX_SUBJECT), sections, one_line(campaign))


def plain(letter: Letter) -> str:
    """The letter in a few lines, for a chat: nobody is called by a name in it."""
    lines: list[str] = []
    for section in letter.sections:
        lines += [
            section.heading,
            section.sentence,
            *(f"- {line.text}: {line.when}" for line in section.lines),
            section.link,
            "",
        ]
    # A mention would call people; an invisible character after its sign makes it mere text.
    return "\n".join(lines).strip().replace("@", "@\u200b").replace("<!", "<\u200b!").replace("<#", "<\u200b#")


def one_line(text: str, longest: int = _LONGEST) -> str:
    """*text* without line breaks, control and direction characters, at most *longest* characters long."""
    seen = "".join(" " if char.isspace() else char for char in text if char.isspace() or not _unseen(char))
    flat = " ".join(seen.split())
    return flat if len(flat) <= longest else flat[: longest - 1].rstrip() + "…"


def span(seconds: float) -> str:
    """A duration as a tired person reads it: ``2 h 10 min``, ``3 days``."""
    if seconds < _MINUTE:
        return "less than a minute"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min"
    if seconds < 2 * _DAY:
        hours, minutes = int(seconds // _HOUR), int(seconds % _HOUR // _MINUTE)
        return f"{hours} h {minutes} min" if minutes and hours < 12 else f"{hours} h"
    return f"{int(seconds // _DAY)} days"


def instant(at: datetime) -> str:
    """An instant in UTC: ``Mon 30 Nov 2026, 14:05 UTC``."""
    at = at.astimezone(UTC)
    return f"{at:%a} {at.day} {at:%b %Y, %H:%M} UTC"


def _unseen(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN


def _merged(news: Iterable[News]) -> list[News]:
    """News of one kind about one page becomes one piece with all items, each once."""
    found: dict[tuple[str, str, str, str], News] = {}
    for one in news:
        # Two approvals ask two things; two reminders of one run ask the same.
        own = one.detail if one.about.startswith("window.") or one.about == "review.ready" else repr(one)
        key = one.about, one.page, one.who, own
        held = found.get(key)
        items = dict.fromkeys((*(held.items if held else ()), *one.items))
        found[key] = News(one.about, one.who, one.page, tuple(items), one.detail, one.until)
    return list(found.values())


def _first_deadline(news: News, now: datetime) -> datetime:
    deadlines = [item.undo_by for item in news.items if item.undo_by is not None and item.state is None]
    still = [at for at in (*deadlines, news.until) if at is not None and at > now]
    return min(still, default=_NEVER)


def _section(news: News, console: str, now: datetime) -> Section:
    items = sorted(news.items, key=lambda item: (item.state is not None, item.undo_by or _NEVER, item.label))
    lines = tuple(_line(item, now) for item in items)
    heading, sentence = _words(news, now)
    return Section(one_line(heading, _MAX_SUBJECT), sentence, lines, console + news.page)


def _line(item: Item, now: datetime) -> Line:
    record = one_line(item.resource or "")
    text = f"{one_line(item.label)} {one_line(item.what)}".strip() + (f" ({record})" if record else "")
    if item.state is not None:
        return Line(text, one_line(item.state), True)
    if item.undo_by is None:
        return Line(text, "no deadline", False)
    left = (item.undo_by - now).total_seconds()
    if left <= 0:
        return Line(text, f"closed on {instant(item.undo_by)}", True)
    return Line(text, f"{span(left)} left, until {instant(item.undo_by)}", False)


def _words(news: News, now: datetime) -> tuple[str, str]:
    """The heading, which is the subject of a letter of its own, and the sentence under it."""
    who, detail = one_line(news.who), one_line(news.detail, 1000)
    deadline = _first_deadline(news, now)
    left = "" if deadline == _NEVER else f"for {span((deadline - now).total_seconds())} more"
    opened = [item for item in news.items if item.state is None and (item.undo_by is None or item.undo_by > now)]
    calls = f"{len(opened)} call{'' if len(opened) == 1 else 's'}"
    can = f"{calls} of {who} can still be taken back" if opened else f"Nothing of {who} can be taken back any more"
    last = f" {left}" if left else ""
    match news.about:
        case "review.ready":
            told = (
                f"{can}{',' if left else ''}{last}",
                "The run has closed." + (" The earliest window first:" if opened else ""),
            )
        case "window.reminder":
            soon = "The window closes soon. Look at it, or say that you have seen it."
            told = f"{can}{last}", soon if opened else "Nothing is left to do."
        case "window.escalation":
            told = f"Nobody has looked yet: {can}{last}", "You are asked because nobody has reacted to the reminder."
        case "window.passed":
            told = f"A window of {who} has closed", _PASSED
        case "approval.requested":
            what = ", ".join(one_line(item.what) for item in news.items)
            until = "" if news.until is None else f"Decide before {instant(news.until)}; after that it is not done."
            told = (
                f"{who} asks for your approval: {what}",
                f"{detail[:1].upper()}{detail[1:]}. {until}".strip(" .") + ".",
            )
        case "reversal.completed":
            told = detail, "What became of each call:"
        case "role.changed":
            told = detail, "These runs can still be taken back, and somebody has to look after them:"
        case "calendar.unreadable":
            told = f"The calendar of {who} cannot be read", detail
    return told
