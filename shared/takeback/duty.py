"""When somebody is on duty: weekly hours in a zone, less holidays and absences (P3, N3). Pure: instants in, instants out.

Hours are wall-clock times. On the two days a year when clocks change, duty begins at the first instant whose wall clock has
reached its beginning and ends at the last one whose wall clock has not reached its end. So an hour that does not exist is
skipped, an hour that comes twice belongs to one duty and not to two, and each boundary is one instant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

HORIZON = timedelta(days=400)
"""How far ahead, and back, duty is looked for: whoever is away for longer is never on duty."""
TEAM: Final = "team"
"""A calendar under this name, or under a role's, is a team's: it counts for whoever has none of their own."""
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Hours:
    """From *start* to *end*, wall-clock; an *end* that is not after *start* is on the next day (midnight: its very end)."""

    start: time
    end: time


@dataclass(frozen=True, slots=True)
class Span:
    """From *start* up to, and without, *end*."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Around:
    """Duty before an instant: from *first* on, for the last time until *last*; both None without any. *back*: the next from
    that instant on, None without any within `HORIZON`."""

    first: datetime | None
    last: datetime | None
    back: datetime | None


@dataclass(frozen=True, slots=True, eq=False)
class Calendar:
    """*weekly*: hours by weekday, Monday is 0. *absences*: in order of their start, they may overlap."""

    zone: ZoneInfo
    weekly: Mapping[int, Sequence[Hours]]
    is_holiday: Callable[[date], bool] = field(default=lambda _: False)
    absences: Sequence[Span] = ()


def calendar_for(sub: str, role: str | None, known: Mapping[str, Calendar]) -> Calendar | None:
    """The calendar that counts for *sub*: their own, else their role's, else the team's."""
    for name in (sub, role, TEAM):
        if name is not None and name in known:
            return known[name]
    return None


def next_on_duty(calendar: Calendar, after: datetime) -> datetime | None:
    """The first instant at or after *after* that is on duty; None where there is none within `HORIZON`."""
    after = after.astimezone(UTC)
    piece = next(_pieces(calendar, after, after + HORIZON), None)
    return None if piece is None else piece.start


def last_duty(calendar: Calendar, before: datetime, since: datetime) -> Span | None:
    """The last stretch of duty between *since* and *before*, cut to them (and to a day at the least); None without any.

    Its end is not on duty any more, unless it is *before*, and duty goes on there.
    """
    before = before.astimezone(UTC)  # arithmetic within a zone is of wall clocks
    since = max(since.astimezone(UTC), before - HORIZON)
    for days in (2, 8, 40, HORIZON.days):
        low = max(since, before - days * _DAY)
        last = next(reversed(list(spans(calendar, low, before))), None)
        if low == since or (last is not None and (last.start > low or last.end - last.start >= _DAY)):
            return last
    return None


class Ahead:
    """One calendar's duty from *now* on, laid out once and as far as it is asked for: many windows close within days."""

    def __init__(self, calendar: Calendar, now: datetime) -> None:
        self._now = now.astimezone(UTC)
        self._pieces = _pieces(calendar, self._now, self._now + 2 * HORIZON)
        self._laid: list[Span] = []

    def around(self, end: datetime) -> Around | None:
        """Duty between now and *end*; None for an *end* that is over, or further away than `HORIZON`: nobody plans so far."""
        end = end.astimezone(UTC)
        if not self._now < end <= self._now + HORIZON:
            return None
        self._lay(end)
        place = bisect_left(self._laid, end, key=_start)
        last = self._laid[place - 1] if place else None
        back = self._laid[place].start if place < len(self._laid) else None
        if last is not None and last.end > end:
            back = end
        elif back is not None and back - end > HORIZON:
            back = None
        return Around(self._laid[0].start if place else None, min(last.end, end) if last is not None else None, back)

    def _lay(self, end: datetime) -> None:
        """Lays out until the last stretch ends after *end*."""
        while not self._laid or self._laid[-1].end <= end:
            piece = next(self._pieces, None)
            if piece is None:
                return
            if self._laid and piece.start <= self._laid[-1].end:
                self._laid[-1] = Span(self._laid[-1].start, max(self._laid[-1].end, piece.end))
            else:
                self._laid.append(piece)


def spans(calendar: Calendar, since: datetime, until: datetime) -> Iterator[Span]:
    """Every stretch of duty between *since* and *until*, cut to them, in order; those that touch or overlap are one."""
    held: Span | None = None
    for piece in _pieces(calendar, since.astimezone(UTC), until.astimezone(UTC)):
        if held is None:
            held = piece
        elif piece.start <= held.end:
            held = Span(held.start, max(held.end, piece.end))
        else:
            yield held
            held = piece
    if held is not None:
        yield held


def _start(span: Span) -> datetime:
    return span.start


def _pieces(calendar: Calendar, since: datetime, until: datetime) -> Iterator[Span]:
    """The same day by day, in order of their start."""
    day = since.astimezone(calendar.zone).date() - 2 * _DAY
    last = until.astimezone(calendar.zone).date() + _DAY
    while day <= last:
        for whole in _of_day(calendar, day):
            for rest in _without(whole, calendar.absences):
                start, end = max(rest.start, since), min(rest.end, until)
                if start < end:
                    yield Span(start, end)
        day += _DAY


@lru_cache(maxsize=50_000)
def _of_day(calendar: Calendar, day: date) -> Sequence[Span]:
    """The duty that begins on *day*, in order, before absences. Asked again and again, for every window that is open then."""
    hours = calendar.weekly.get(day.weekday(), ())
    if not hours or calendar.is_holiday(day):
        return ()
    found = []
    for one in hours:
        ends_on = day if one.end > one.start else day + _DAY
        start = _first_at(datetime.combine(day, one.start), calendar.zone)
        end = _last_before(datetime.combine(ends_on, one.end), calendar.zone)
        if start < end:
            found.append(Span(start, end))
    return tuple(sorted(found, key=lambda span: span.start))


def _first_at(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant at which *zone*'s clocks have reached *wall*."""
    early, late = _both(wall, zone)
    return _jump(early, late, zone) if early > late else early


def _last_before(wall: datetime, zone: ZoneInfo) -> datetime:
    """The last instant up to which *zone*'s clocks have not reached *wall*."""
    early, late = _both(wall, zone)
    return _jump(early, late, zone) if early > late else late


def _both(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """What *wall* means by the offset before and by the one after a change of clocks; the same on any other day."""
    return (
        wall.replace(tzinfo=zone, fold=0).astimezone(UTC),
        wall.replace(tzinfo=zone, fold=1).astimezone(UTC),
    )


def _jump(by_old: datetime, by_new: datetime, zone: ZoneInfo) -> datetime:
    """When clocks sprang forward over a wall time that never was; it lies between its two readings."""
    new = by_old.astimezone(zone).utcoffset()
    low, high = by_new, by_old  # the old offset holds at low, the new one at high
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        if middle.astimezone(zone).utcoffset() == new:
            high = middle
        else:
            low = middle
    return high


def _without(span: Span, absences: Sequence[Span]) -> list[Span]:
    """*span* less *absences*, in order."""
    rest, start = [], span.start
    for absence in absences:
        if absence.start >= span.end:
            break
        if absence.end <= start:
            continue
        if absence.start > start:
            rest.append(Span(start, absence.start))
        start = absence.end
    if start < span.end:
        rest.append(Span(start, span.end))
    return rest
