"""Duty calendars as people write them: zone, weekly hours, holidays, absences (P3)."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx
import pytest

from takeback.calendars import BadCalendar, Calendars, check
from takeback.duty import next_on_duty

OFFICE = {"zone": "Europe/Berlin", "weekly": {day: [["09:00", "17:00"]] for day in ("mon", "tue", "wed", "thu", "fri")}}


def ics(*events: str) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:test"]
    for number, event in enumerate(events):
        lines += ["BEGIN:VEVENT", f"UID:{number}", *event.split("|"), "END:VEVENT"]
    return "\r\n".join([*lines, "END:VCALENDAR", ""])


def next_monday() -> date:
    today = datetime.now(UTC).date()
    return today + timedelta(days=7 - today.weekday())


def calendars(answer: Any = None) -> Calendars:
    return Calendars(httpx.AsyncClient(transport=httpx.MockTransport(answer or (lambda _: httpx.Response(404)))))


def on_duty(document: dict[str, Any], day: date, hour: int, known: Calendars | None = None) -> bool:
    calendar = (known or calendars()).of(document)
    assert calendar is not None
    at = datetime(day.year, day.month, day.day, hour, tzinfo=calendar.zone)
    return next_on_duty(calendar, at) == at


def test_holidays_are_those_of_the_country_and_its_part() -> None:
    """P3: Epiphany is one in Bavaria and none in Berlin."""
    day = date(2026, 1, 6)
    assert not on_duty(OFFICE | {"holidays": "DE-BY"}, day, 10)
    assert on_duty(OFFICE | {"holidays": "DE"}, day, 10)


def test_absences_may_be_whole_days_times_without_a_zone_and_repeated() -> None:
    """P3: the person's own days and hours; what is cancelled, or shown as free, takes nobody away."""
    monday = next_monday()
    days = [monday + timedelta(days=number) for number in range(5)]
    absences = ics(
        f"DTSTART;VALUE=DATE:{days[0]:%Y%m%d}",
        f"DTSTART:{days[1]:%Y%m%d}T100000|DTEND:{days[1]:%Y%m%d}T120000|RRULE:FREQ=WEEKLY",
        f"DTSTART;VALUE=DATE:{days[2]:%Y%m%d}|STATUS:CANCELLED",
        f"DTSTART;VALUE=DATE:{days[3]:%Y%m%d}|TRANSP:TRANSPARENT",
    )
    document = OFFICE | {"absences": absences}
    assert [on_duty(document, day, 10) for day in days] == [False, False, True, True, True]
    assert on_duty(document, days[1], 12)
    assert not on_duty(document, days[1] + timedelta(days=7), 11)


async def test_a_feed_is_read_beside_everything_else_and_one_that_fails_changes_nothing() -> None:
    """P3: told, not fatal: what was read last counts."""
    monday = next_monday()
    answers = [httpx.Response(200, text=ics(f"DTSTART;VALUE=DATE:{monday:%Y%m%d}")), httpx.Response(500)]
    known = calendars(lambda _: answers.pop(0))
    document = OFFICE | {"absences": "https://calendar.example/ann.ics"}
    assert on_duty(document, monday, 10, known)
    await known.meet([document])
    assert not on_duty(document, monday, 10, known)
    assert known.problems == {}
    known._feeds[document["absences"]].due = 0.0
    assert await known.refresh() == set()
    assert not on_duty(document, monday, 10, known)
    assert known.problems == {document["absences"]: "it answered 500"}


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"weekly": {"mon": [["17:00", "17:00"]]}}, "weekly.mon"),
        ({"weekly": {"mon": [["25:00", "26:00"]]}}, "weekly.mon"),
        ({"weekly": {"mon": [["09:00", "17:00"]] * 49}}, "weekly.mon"),
        ({"holidays": "DE-XX"}, "holidays"),
        ({"absences": "ftp://calendar.example/a.ics"}, "absences"),
        ({"absences": "BEGIN:VCALENDAR\r\nno calendar"}, "absences"),
        ({"absences": ics("DTSTART:20260101T000000Z|RRULE:FREQ=SECO\r\n NDLY")}, "absences"),
        ({"absences": ics(*["DTSTART:20260101T000000Z|RRULE:FREQ=DAILY"] * 201)}, "absences"),
    ],
)
def test_a_calendar_that_cannot_be_used_says_where(wrong: dict[str, Any], where: str) -> None:
    """P3: and one that would take for ever to lay out is refused."""
    with pytest.raises(BadCalendar, match=f"^{where}: "):
        check(OFFICE | wrong)


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=DAILY;INTERVAL=0",
        "FREQ=DAILY;INTERVAL=-1",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "BYMONTHDAY=30;BYMONTH=2;FREQ=DAILY",
        "FREQ=DAILY;BYMONTH=13",
        "FREQ=MONTHLY;BYDAY=6MO",
        "FREQ=YEARLY;BYEASTER=0;BYMONTH=12",
        "FREQ=DAILY;BYMONTH=x",
    ],
)
def test_an_event_that_never_comes_again_is_refused_before_anybody_looks_for_it(rule: str) -> None:
    """P3: one calendar must not stop everybody's recorder."""
    with pytest.raises(BadCalendar, match="days that those months have"):
        check({**OFFICE, "absences": ics("DTSTART:20260101T000000Z|DTEND:20260101T010000Z|RRULE:" + rule)})


@pytest.mark.parametrize("rule", ["FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=25,26", "FREQ=MONTHLY;BYDAY=-1FR;INTERVAL=2"])
def test_events_that_repeat_as_calendars_write_them_are_taken(rule: str) -> None:
    """P3."""
    check({**OFFICE, "absences": ics("DTSTART:20260101T000000Z|DTEND:20260101T010000Z|RRULE:" + rule)})


def test_dates_and_countries_that_are_none_are_refused() -> None:
    """P3: in words, not as a defect."""
    with pytest.raises(BadCalendar, match="holidays"):
        check({**OFFICE, "holidays": "__class__"})
    with pytest.raises(BadCalendar, match="absences"):
        check({**OFFICE, "absences": ics("DTSTART:00010101|DTEND:99991231|RRULE:FREQ=DAILY")})
