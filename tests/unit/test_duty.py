"""Duty is a function of weekly hours, a zone, holidays and absences (P3, N3): no boundary missed, none doubled."""

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takeback.duty import HORIZON, Ahead, Around, Calendar, Hours, Span, calendar_for, last_duty, next_on_duty, spans

WORKING = {day: (Hours(time(9), time(18)),) for day in range(5)}
BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY = datetime(2026, 11, 27, 15, tzinfo=BERLIN)
ZONES = sorted(available_timezones()) if "TAKEBACK_FAULT_ROUNDS" in os.environ else ["Europe/Berlin"]
"""All of them take minutes: `make faults`."""
# Whole and half hours, a day that a country skipped, clocks that change at midnight, at noon of the equator, and never.
TELLING = (
    "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca",
    "Asia/Kathmandu", "America/Havana", "Asia/Beirut", "Antarctica/Troll", "Africa/Cairo", "UTC",
)  # fmt: skip
DECADE = date(2021, 1, 1), date(2031, 1, 1)
START = datetime(2025, 1, 1, tzinfo=UTC)
calendars = st.builds(
    Calendar,
    st.sampled_from(TELLING).map(ZoneInfo),
    st.dictionaries(
        st.integers(0, 6),
        st.lists(
            st.builds(Hours, st.times(), st.times()).filter(lambda hours: hours.start != hours.end),
            min_size=1,
            max_size=2,
        ),
        max_size=7,
    ),
    absences=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)).map(
            lambda pair: Span(_at(pair[0]), _at(pair[0]) + timedelta(minutes=pair[1]))
        ),
        max_size=3,
    ).map(lambda spans: tuple(sorted(spans, key=lambda span: span.start))),
)
instants = st.integers(0, 10**6).map(lambda minutes: START + timedelta(minutes=minutes))


def _at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


def on_duty(calendar: Calendar, at: datetime) -> bool:
    """Whether *at* lies in a stretch of duty."""
    return next(spans(calendar, at, at + timedelta(seconds=1)), None) is not None


def test_the_next_duty_is_now_or_the_next_working_morning() -> None:
    """P3: Friday at 15:00 is on duty, at 18:30 it is Monday, 9:00."""
    calendar = Calendar(BERLIN, WORKING)
    assert next_on_duty(calendar, FRIDAY) == FRIDAY
    assert next_on_duty(calendar, FRIDAY.replace(hour=18)) == datetime(2026, 11, 30, 9, tzinfo=BERLIN)
    assert next_on_duty(calendar, FRIDAY.replace(hour=18, minute=30)) == datetime(2026, 11, 30, 9, tzinfo=BERLIN)
    assert next_on_duty(Calendar(BERLIN, {}), FRIDAY) is None


def test_holidays_and_absences_take_duty_away() -> None:
    """P3."""
    monday = datetime(2026, 11, 30, 9, tzinfo=BERLIN)
    evening = FRIDAY.replace(hour=20)
    holiday = Calendar(BERLIN, WORKING, is_holiday=lambda day: day == monday.date())
    assert next_on_duty(holiday, evening) == monday + timedelta(days=1)
    away = Calendar(BERLIN, WORKING, absences=(Span(FRIDAY, monday + timedelta(hours=2)),))
    assert next_on_duty(away, evening) == monday + timedelta(hours=2)
    assert next_on_duty(away, FRIDAY) == monday + timedelta(hours=2)


def test_a_night_shift_belongs_to_the_day_that_it_begins_on() -> None:
    """P3."""
    calendar = Calendar(BERLIN, {4: (Hours(time(22), time(6)),)})
    saturday = datetime(2026, 11, 28, 5, tzinfo=BERLIN)
    assert next_on_duty(calendar, saturday) == saturday
    assert next_on_duty(calendar, saturday.replace(hour=6)) == datetime(2026, 12, 4, 22, tzinfo=BERLIN)


def test_an_hour_that_is_skipped_is_skipped_and_one_that_comes_twice_is_one_duty() -> None:
    """P3: clocks spring forward from 2 to 3 on March 29th, and fall back from 3 to 2 on October 25th."""
    calendar = Calendar(BERLIN, {6: (Hours(time(2, 30), time(3, 15)),)})
    [spring] = spans(calendar, datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 30, tzinfo=UTC))
    assert spring == Span(datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 3, 29, 1, 15, tzinfo=UTC))
    [autumn] = spans(calendar, datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC))
    assert autumn == Span(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 2, 15, tzinfo=UTC))


def test_a_persons_own_calendar_outranks_their_roles_and_the_teams() -> None:
    """P3."""
    own, role, team = (Calendar(ZoneInfo(name), {}) for name in TELLING[:3])
    assert calendar_for("ann", "owner", {"ann": own, "owner": role, "team": team}) is own
    assert calendar_for("ann", "owner", {"owner": role, "team": team}) is role
    assert calendar_for("ann", None, {"owner": role, "team": team}) is team
    assert calendar_for("ann", "owner", {"bob": own}) is None


@given(calendars, instants)
def test_the_next_duty_is_the_first_one(calendar: Calendar, after: datetime) -> None:
    """P3: never before, on duty itself, and nothing between is."""
    found = next_on_duty(calendar, after)
    until = found if found is not None else after + timedelta(days=30)
    assert found is None or (found >= after and on_duty(calendar, found))
    assert next(spans(calendar, after, until), None) is None


@given(calendars, instants, st.integers(0, 20_000))
def test_the_last_duty_is_inside_the_window_and_nothing_after_it_is_on_duty(
    calendar: Calendar, since: datetime, minutes: int
) -> None:
    """N3: what it is cut to is what it may not leave."""
    before = since + timedelta(minutes=minutes)
    found = last_duty(calendar, before, since)
    if found is None:
        assert next(spans(calendar, since, before), None) is None
        return
    assert since <= found.start < found.end <= before
    assert on_duty(calendar, found.start)
    assert next(spans(calendar, found.end, before), None) is None


@settings(max_examples=50)
@given(calendars, instants)
def test_stretches_of_duty_come_in_order_and_never_touch(calendar: Calendar, since: datetime) -> None:
    """P3."""
    found = list(spans(calendar, since, since + timedelta(days=40)))
    assert all(span.start < span.end for span in found)
    assert all(first.end < second.start for first, second in pairwise(found))


@pytest.mark.parametrize("zone", TELLING)
def test_every_boundary_is_there_once(zone: str) -> None:
    """Must hold: none missed, none doubled; ten years in every zone by `make faults`."""
    check_boundaries(zone, date(2011, 6, 1), date(2012, 6, 1))  # Samoa skipped December 30th
    check_boundaries(zone, date(2025, 6, 1), date(2026, 12, 1))


@pytest.mark.faults
@pytest.mark.parametrize("zone", ZONES)
def test_every_boundary_of_ten_years_is_there_once_in_every_zone(zone: str) -> None:
    """Must hold: all IANA zones over ten years of duty boundaries, none missed, none doubled."""
    check_boundaries(zone, *DECADE)


def check_boundaries(name: str, since: date, until: date) -> None:
    """Holds the boundaries of some years against a second reckoning: the wall clock, second by second around each change.

    Shifts that lie where clocks change (around midnight and 2 o'clock), on every day, beside office hours.
    """
    zone = ZoneInfo(name)
    nights = {day: (Hours(time(1, 30), time(2, 30)), Hours(time(23, 30), time(0, 30))) for day in range(7)}
    for weekly in (WORKING, nights):
        first, last = (datetime.combine(day, time(), UTC) for day in (since, until))
        found = list(spans(Calendar(zone, weekly), first, last))
        expected = [span for span in _reckoned(zone, weekly, since, until) if span.end > first and span.start < last]
        assert [span for span in found if first < span.start and span.end < last] == [
            span for span in expected if first < span.start and span.end < last
        ]
        starts = [span.start for span in found]
        assert len(set(starts)) == len(starts)


def _reckoned(zone: ZoneInfo, weekly: dict[int, tuple[Hours, ...]], first: date, last: date) -> list[Span]:
    """The same from the offsets in force around each day alone, by looking for the instants at which the wall clock passes."""
    found: list[Span] = []
    for day in _days(first - timedelta(days=2), last + timedelta(days=2)):
        for hours in weekly.get(day.weekday(), ()):
            ends_on = day if hours.end > hours.start else day + timedelta(days=1)
            start = _passes(zone, datetime.combine(day, hours.start), first=True)
            end = _passes(zone, datetime.combine(ends_on, hours.end), first=False)
            if start < end:
                found.append(Span(start, end))
    merged: list[Span] = []
    for span in sorted(found, key=lambda span: span.start):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _passes(zone: ZoneInfo, wall: datetime, *, first: bool) -> datetime:
    """The first instant from which the wall clock shows *wall* or later, or the last one before which it shows less."""
    middle = wall.replace(tzinfo=UTC)
    low, high = middle - timedelta(hours=38), middle + timedelta(hours=38)
    offsets = {at.astimezone(zone).utcoffset() for at in (low, middle, high)}
    if len(offsets) == 1:
        return middle - offsets.pop()
    candidates = sorted(middle - offset for offset in offsets if offset is not None)
    exact = [at for at in candidates if at.astimezone(zone).replace(tzinfo=None) == wall]
    if exact:
        return exact[0] if first else exact[-1]
    while high - low > timedelta(seconds=1):  # nobody's clock ever showed it: when it was passed over
        half = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        if half.astimezone(zone).replace(tzinfo=None) >= wall:
            high = half
        else:
            low = half
    return high


def _days(first: date, last: date) -> Iterator[date]:
    day = first
    while day <= last:
        yield day
        day += timedelta(days=1)


def test_a_window_over_the_weekend_lies_between_the_last_duty_and_the_next() -> None:
    """P3: Friday at 15:00 for a day: there until 18:00, back on Monday; from 18:30 on there is nobody before it closes."""
    calendar = Calendar(BERLIN, WORKING)
    monday = datetime(2026, 11, 30, 9, tzinfo=BERLIN)
    evening = FRIDAY.replace(hour=18, minute=30)
    assert Ahead(calendar, FRIDAY).around(FRIDAY + timedelta(days=1)) == Around(FRIDAY, FRIDAY.replace(hour=18), monday)
    assert Ahead(calendar, evening).around(evening + timedelta(days=1)) == Around(None, None, monday)


@given(calendars, instants, st.lists(st.integers(1, 3 * 24 * 60), min_size=1, max_size=4))
def test_duty_before_an_instant_is_bounded_by_the_first_stretch_and_the_last(
    calendar: Calendar, now: datetime, minutes: list[int]
) -> None:
    """P3: whatever was asked for before."""
    ahead = Ahead(calendar, now)
    for after in minutes:
        end = now + timedelta(minutes=after)
        stretches = list(spans(calendar, now, end))
        first, last = (stretches[0].start, stretches[-1].end) if stretches else (None, None)
        assert ahead.around(end) == Around(first, last, next_on_duty(calendar, end))


def test_nothing_is_said_of_duty_before_what_is_over_or_too_far_away() -> None:
    """P3: nobody plans further than the horizon."""
    calendar = Calendar(BERLIN, WORKING)
    assert Ahead(calendar, FRIDAY).around(FRIDAY) is None
    assert Ahead(calendar, FRIDAY).around(FRIDAY + HORIZON + timedelta(seconds=1)) is None
