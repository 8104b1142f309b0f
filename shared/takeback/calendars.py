"""Duty calendars as people write them (`PUT …/calendars/{sub}`): zone, weekly hours, holidays of a country, absences (P3, N3).

Absences are an iCalendar feed by its URL, or a file's content. A feed is fetched beside everything else, never while somebody
waits: until it has been read once, and while it cannot be read, the calendar counts with what was read last, and `problems`
says what is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as wall_time
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

import holidays
import httpx
import icalendar
import recurring_ical_events  # type: ignore[import-untyped]  # it ships no types

from takeback import json
from takeback.duty import HORIZON, Calendar, Hours, Span
from takeback.errors import words_of
from takeback.outbound import read_text

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FILE = "BEGIN:VCALENDAR"
_FRESH_SECONDS = 900.0
_AGAIN_SECONDS = 60.0
_MEET_SECONDS = 2.0
_LIMIT_BYTES = 2_000_000
_KEPT = 10_000
_STRETCHES = 48
_FOLDED = re.compile(r"\r?\n[ \t]")
_RULE = re.compile(r"(?:RRULE|EXRULE)[^:\r\n]*:(.*)", re.IGNORECASE)
_PARTS = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYMONTH", "BYMONTHDAY"}
_WEEKDAYS = re.compile(r"[+-]?[1-5]?(MO|TU|WE|TH|FR|SA|SU)")
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_REPEATED = 200


class BadCalendar(ValueError):
    """A calendar that cannot be read; the message says where."""


@dataclass(slots=True)
class _Feed:
    """A feed as it was read last: *text* empty before the first time, *problem* why it could not be read since."""

    text: str = ""
    problem: str | None = None
    due: float = 0.0


def check(document: Mapping[str, Any]) -> None:
    """Raises `BadCalendar` for a calendar that cannot be used."""
    _built(document, "")
    for day, hours in document["weekly"].items():
        if len(hours) > _STRETCHES:
            raise BadCalendar(f"weekly.{day}: at most {_STRETCHES} stretches of hours")
    absences = document.get("absences")
    if absences and not is_feed(absences):
        _absences(absences, _zone(document))


def is_feed(absences: str) -> bool:
    """Whether *absences* is an address and not a file's content; raises `BadCalendar` for what is neither."""
    if absences.lstrip("\ufeff \r\n").startswith(_FILE):
        return False
    try:
        url = httpx.URL(absences)
    except httpx.InvalidURL as error:
        raise BadCalendar(f"absences: {error}") from error
    if url.scheme not in ("http", "https", "webcal") or not url.host:
        raise BadCalendar("absences: give an http or https address, or the content of an iCalendar file")
    return True


class Calendars:
    """Calendars built from their documents, with their feeds; one for each process. *client* reads the feeds."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._feeds: dict[str, _Feed] = {}
        self._calendars: dict[bytes, Calendar] = {}
        self._built_on = date.min

    def of(self, document: Mapping[str, Any]) -> Calendar | None:
        """The calendar that *document* describes; None for one that cannot be used (it was checked when it came)."""
        if self._built_on != (today := datetime.now(UTC).date()) or len(self._calendars) > _KEPT:
            self._calendars.clear()  # absences are laid out for a while only
            self._built_on = today
        key = json.dumps(document)
        kept = self._calendars.get(key)
        if kept is None:
            try:
                kept = _built(document, self._absences_of(document))
            except BadCalendar:
                return None
            self._calendars[key] = kept
        return kept

    def all(self, documents: Mapping[str, Mapping[str, Any]]) -> dict[str, Calendar]:
        """The calendars of a campaign, by the name that each was set under."""
        built = {name: self.of(document) for name, document in documents.items()}
        return {name: calendar for name, calendar in built.items() if calendar is not None}

    @property
    def problems(self) -> dict[str, str]:
        """The feeds that cannot be read, with the reason."""
        return {url: feed.problem for url, feed in self._feeds.items() if feed.problem is not None}

    async def meet(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Reads the feeds of *documents* that were never read, for two seconds at most: what is slower is read later."""
        for document in documents:
            self.of(document)
        if any(feed.due == 0.0 for feed in self._feeds.values()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MEET_SECONDS):
                    await self.refresh()

    async def refresh(self) -> set[str]:
        """Reads the feeds that are due; answers those whose absences have changed."""
        now = time.monotonic()
        due = [url for url, feed in self._feeds.items() if feed.due <= now]
        changed = [url for url, moved in zip(due, await asyncio.gather(*map(self._read, due)), strict=True) if moved]
        if changed:
            self._calendars.clear()
        return set(changed)

    async def _read(self, url: str) -> bool:
        feed = self._feeds[url]
        try:
            text = await read_text(self._client, url.replace("webcal://", "https://", 1), _LIMIT_BYTES)
            _absences(text, ZoneInfo("UTC"))
        except (httpx.HTTPError, httpx.InvalidURL, BadCalendar) as error:
            feed.problem = words_of(error)
            feed.due = time.monotonic() + _AGAIN_SECONDS
            return False
        moved = text != feed.text
        feed.text, feed.problem, feed.due = text, None, time.monotonic() + _FRESH_SECONDS
        return moved

    def _absences_of(self, document: Mapping[str, Any]) -> str:
        absences: str | None = document.get("absences")
        if not absences:
            return ""
        if not is_feed(absences):
            return absences
        return self._feeds.setdefault(absences, _Feed()).text


def _built(document: Mapping[str, Any], absences: str) -> Calendar:
    zone = _zone(document)
    weekly = {
        DAYS.index(day): tuple(_hours(day, pair) for pair in pairs) for day, pairs in document.get("weekly", {}).items()
    }
    country = document.get("holidays")
    is_holiday = _holidays(country) if country else _never
    return Calendar(zone, weekly, is_holiday, _absences(absences, zone) if absences else ())


def _zone(document: Mapping[str, Any]) -> ZoneInfo:
    name = document.get("zone")
    if name not in _zones():
        raise BadCalendar(f"zone: {name!r} is no time zone of the IANA database, such as Europe/Berlin")
    return ZoneInfo(str(name))


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _hours(day: str, pair: Any) -> Hours:
    try:
        start, end = pair
        hours = Hours(_wall(start), _wall("00:00" if end == "24:00" else end))
    except (TypeError, ValueError) as error:
        raise BadCalendar(f'weekly.{day}: write hours as ["09:00", "17:30"]') from error
    if start == end:
        raise BadCalendar(f"weekly.{day}: it begins and ends at {start}")
    return hours


def _wall(text: str) -> wall_time:
    hour, minute = text.split(":")
    return wall_time(int(hour), int(minute))


def _never(_: date) -> bool:
    return False


@lru_cache(maxsize=500)
def _holidays(country: str) -> Callable[[date], bool]:
    """Whether a day is a public holiday in *country*: an ISO 3166 code, with a part of it after a dash (``DE-BY``)."""
    code, _, part = country.partition("-")
    try:
        days = holidays.country_holidays(code, subdiv=part or None)
    except (NotImplementedError, AttributeError, TypeError) as error:  # the last two: a name that is no country's
        raise BadCalendar(f"holidays: {error}") from error
    return days.__contains__


def _absences(text: str, zone: ZoneInfo) -> tuple[Span, ...]:
    """What *text* says that takes somebody away, repeated events laid out, in order of their start."""
    now, unfolded = datetime.now(UTC), _FOLDED.sub("", text)
    if unfolded.upper().count("RRULE") > _REPEATED or not all(map(_comes_again, _RULE.findall(unfolded))):
        raise BadCalendar(
            f"absences: at most {_REPEATED} events repeat, daily at most, by weekday, month, and days that those months have"
        )
    try:
        events = recurring_ical_events.of(icalendar.Calendar.from_ical(text), skip_bad_series=True).between(
            now - HORIZON, now + HORIZON
        )
        found = [_span(event, zone) for event in events if _takes_away(event)]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise BadCalendar(f"absences: this is no iCalendar that can be read: {error}") from error
    return tuple(sorted(found, key=lambda span: span.start))


def _comes_again(rule: str) -> bool:
    """Whether the repetition *rule* meets a day soon, wherever it is looked at.

    One that never does (every zeroth day, the 30th of February) would be followed until the year 9999, or for ever.
    """
    parts = dict(part.partition("=")[::2] for part in rule.upper().strip().split(";"))
    listed = {name: value.split(",") for name, value in parts.items()}
    try:
        months = [int(month) for month in listed.get("BYMONTH", range(1, 13))]
        days = [abs(int(day)) for day in listed.get("BYMONTHDAY", ["1"])]
        return (
            parts.keys() <= _PARTS
            and parts.get("FREQ") in ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
            and int(parts.get("INTERVAL", "1")) > 0
            and all(_WEEKDAYS.fullmatch(day) for day in listed.get("BYDAY", []))
            and all(1 <= month <= 12 for month in months)
            and any(1 <= day <= _LONGEST[month - 1] for month in months for day in days)
            and not ("BYMONTHDAY" in parts and parts["FREQ"] in ("DAILY", "WEEKLY"))
        )
    except ValueError:
        return False


def _takes_away(event: Any) -> bool:
    return str(event.get("STATUS", "")).upper() != "CANCELLED" and str(event.get("TRANSP", "")).upper() != "TRANSPARENT"


def _span(event: Any, zone: ZoneInfo) -> Span:
    """Whole days are the person's own days, and a time without a zone is the person's own time."""
    start, end = event.start, event.end
    if not isinstance(end, datetime) and end == start:
        end = start + timedelta(days=1)
    return Span(_instant(start, zone), _instant(end, zone))


def _instant(value: date | datetime, zone: ZoneInfo) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.combine(value, wall_time())
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
