"""When somebody is reminded, and whom to call, is a function of the window, the terms, the people and the clock (N3, N4)."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.escalation import GRACE, People, Step, Terms, Told, reminder_time, step
from notifier.remembering import REMEMBERED
from notifier.windows import Window
from takeback.duty import Calendar, Hours, next_on_duty
from takeback.messages.campaign import Reminders
from tests.unit.test_duty import calendars, instants

BERLIN = ZoneInfo("Europe/Berlin")
OFFICE = Calendar(BERLIN, {day: (Hours(time(9), time(18)),) for day in range(5)})
POLICY = Reminders(lead_seconds=3600, escalate_after_seconds=1800, escalate_to="bob")
PEOPLE = People({"ann": "member", "bob": "approver", "gm": "owner"}, {"ann": OFFICE})
DAY = timedelta(days=1)
durations = st.integers(1, 40 * 86400).map(lambda seconds: timedelta(seconds=seconds))


def window_from(opened: datetime, length: timedelta = DAY) -> Window:
    opened = opened.astimezone(UTC)
    return Window("ent_1", "run_1", "cmp_1", "ann", opened, opened + length)


def played(window: Window, terms: Terms, people: People) -> list[tuple[datetime, Step]]:
    """What is done about *window*, and when, by somebody who looks exactly when a step says, until it lapses."""
    now, told, done = window.opened_at, Told(), []
    for _ in range(20):
        found = step(window, terms, people, told, now)
        if found.action != "wait":
            done.append((now, found))
        if found.action == "lapse":
            return done
        if found.action == "remind":
            told = Told(reminded_at=now)
        elif found.action == "escalate":
            told = Told(reminded_at=told.reminded_at, escalated=True)
        assert found.look_at > now or found.action != "wait"
        now = max(now, found.look_at)
    raise AssertionError("it never lapses")


def test_a_call_on_friday_afternoon_is_reminded_of_before_the_weekend() -> None:
    """Must hold: Friday 15:00, a one-day window, duty until 18:00 and again from Monday 9:00: before 18:00."""
    friday = datetime(2026, 11, 27, 15, tzinfo=BERLIN)
    window = window_from(friday)
    done = played(window, Terms.of(POLICY, window), PEOPLE)
    assert [found.action for _, found in done] == ["remind", "escalate", "lapse"]
    assert done[0][0] == friday.replace(hour=17, minute=30)
    assert done[0][1].to == ["ann"]
    assert (done[1][0], done[1][1].to) == (friday.replace(hour=18), ["bob"])


def test_a_call_on_friday_evening_is_reminded_of_at_once_and_then_escalated() -> None:
    """Must hold: the same call at 18:30."""
    evening = datetime(2026, 11, 27, 18, 30, tzinfo=BERLIN)
    window = window_from(evening)
    (reminded, first), (escalated, second), _ = played(window, Terms.of(POLICY, window), PEOPLE)
    assert (reminded, first.action, first.to) == (evening, "remind", ["ann"])
    assert (escalated, second.action, second.to) == (evening + timedelta(minutes=30), "escalate", ["bob"])


def test_without_a_policy_there_is_an_hour_or_a_quarter_and_the_owners_are_called() -> None:
    """N3."""
    noon = datetime(2026, 11, 30, 12, tzinfo=BERLIN)
    for length, lead in ((DAY, timedelta(hours=1)), (timedelta(minutes=40), timedelta(minutes=10))):
        window = window_from(noon, length)
        (reminded, _), (escalated, called), _ = played(window, Terms.of(None, window), People(PEOPLE.roles, {}))
        assert (reminded, escalated) == (window.undo_by - lead, window.undo_by - lead / 2)
        assert called.to == ["gm"]


@pytest.mark.parametrize(
    ("roles", "reminded", "called"),
    [
        ({"ann": "member", "bob": "approver", "gm": "owner"}, ["ann"], ["bob"]),
        ({"ann": "member", "gm": "owner"}, ["ann"], ["gm"]),
        ({"bob": "approver", "gm": "owner"}, ["gm"], ["bob"]),
        ({"ann": "owner"}, ["ann"], []),
        ({"ann": "owner", "gm": "owner"}, ["ann"], ["gm"]),
    ],
)
def test_whoever_has_left_is_not_written_to(roles: dict[str, str], reminded: list[str], called: list[str]) -> None:
    """N3, N9: the owners stand in."""
    window = window_from(datetime(2026, 11, 30, tzinfo=UTC))
    done = [found for _, found in played(window, Terms.of(POLICY, window), People(roles, {}))]
    assert [found.to for found in done if found.action in ("remind", "escalate")] == [
        reminded,
        *([called] if called else []),
    ]


def test_what_is_past_is_told_as_past_unless_somebody_knew() -> None:
    """N3: nobody gets a reminder of what is over."""
    window = window_from(datetime(2026, 11, 30, tzinfo=UTC))
    terms, later = Terms.of(POLICY, window), window.undo_by + DAY
    found = step(window, terms, PEOPLE, Told(), later)
    assert (found.action, found.tell_passed, found.to) == ("lapse", True, ["ann"])
    for told in (Told(reminded_at=later), Told(passed=True), Told(acknowledged=True)):
        assert not step(window, terms, PEOPLE, told, later).tell_passed
    assert step(window, terms, PEOPLE, Told(), window.undo_by).action == "wait"


def test_what_is_so_long_past_that_nobody_remembers_who_knew_only_lapses() -> None:
    """N3, N5: the ledger of who was told is trimmed by then."""
    window = window_from(datetime(2026, 11, 30, tzinfo=UTC))
    found = step(window, Terms.of(POLICY, window), PEOPLE, Told(), window.undo_by + REMEMBERED)
    assert (found.action, found.tell_passed) == ("lapse", False)


@given(instants, durations, st.builds(Terms, durations, durations, st.sampled_from(["bob", None])), calendars)
def test_every_window_is_reminded_of_once_and_escalated_once_before_it_closes(
    opened: datetime, length: timedelta, terms: Terms, calendar: Calendar
) -> None:
    """N3: whatever the terms, the zone and the duty: each once, in order, in time."""
    window = window_from(opened, length)
    done = played(window, terms, People(PEOPLE.roles, {"team": calendar}))
    assert [found.action for _, found in done] == ["remind", "escalate", "lapse"]
    (reminded, _), (escalated, _), (lapsed, _) = done
    assert window.opened_at <= reminded <= escalated < window.undo_by < lapsed == window.undo_by + GRACE


@given(instants, durations, durations, calendars)
def test_a_reminder_is_never_later_than_the_lead_and_on_duty_where_that_is_possible(
    opened: datetime, length: timedelta, lead: timedelta, calendar: Calendar
) -> None:
    """N3: moved earlier, never later than the window."""
    window = window_from(opened, length)
    due = max(window.opened_at, window.undo_by - lead)
    found = reminder_time(window, lead, calendar)
    assert window.opened_at <= found <= due
    first = next_on_duty(calendar, window.opened_at)
    if first is not None and first < due:
        assert next_on_duty(calendar, found) == found


@given(instants, durations, st.booleans())
def test_an_acknowledged_window_is_quiet(opened: datetime, length: timedelta, reminded: bool) -> None:
    """N3."""
    window = window_from(opened, length)
    told = Told(reminded_at=window.opened_at if reminded else None, acknowledged=True)
    found = step(window, Terms.of(POLICY, window), PEOPLE, told, window.opened_at)
    assert (found.action, found.look_at) == ("wait", window.undo_by + GRACE)


def test_terms_that_no_calendar_reaches_still_come_to_a_step() -> None:
    """N3: one campaign's policy must not stop everybody's reminders."""
    window = window_from(datetime(2026, 11, 30, 12, tzinfo=UTC))
    endless = Reminders(lead_seconds=10**15, escalate_after_seconds=10**15, escalate_to="bob")
    assert step(window, Terms.of(endless, window), PEOPLE, Told(), window.opened_at).action == "remind"
