"""When somebody is reminded of a window, and whom to call when nobody acts (N3, N4). Pure: every time is handed in.

The reminder goes out the lead before the window closes. Would it arrive while its reader is off duty, it goes out earlier, half
an hour before the end of their last duty inside the window; without any such duty it goes out at once. It never goes out later.
Nobody having acknowledged, others are called a while after the reminder, and in any case before half of the time that was
left is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from notifier.remembering import is_remembered
from notifier.windows import Window
from takeback.duty import Calendar, calendar_for, last_duty, next_on_duty
from takeback.messages.campaign import Reminders

DEFAULT_LEAD = timedelta(hours=1)
"""Without a policy: an hour before the window closes, or a quarter of the window where that is shorter."""
HANDOVER = timedelta(minutes=30)
"""How long before the end of duty a reminder comes that was moved there: time enough to act on it."""
GRACE = timedelta(seconds=1)
"""How long after its end a window is said to have lapsed: what was accepted just before is known by then."""

_LONG = timedelta(minutes=10)
_LONGEST_SECONDS = 100 * 366 * 86_400
"""A hundred years are as good as for ever, and still a time that can be reckoned with."""

Action = Literal["wait", "remind", "escalate", "lapse"]


@dataclass(frozen=True, slots=True)
class Terms:
    """A campaign's terms: *lead* before the end, *escalate_after* the reminder, *escalate_to* (a sub, None: the owners)."""

    lead: timedelta
    escalate_after: timedelta
    escalate_to: str | None = None

    @classmethod
    def of(cls, policy: Reminders | None, window: Window) -> Terms:
        """What *policy* says; without one: `DEFAULT_LEAD`, and the owners half of that later."""
        if policy is None:
            lead = min(DEFAULT_LEAD, (window.undo_by - window.opened_at) / 4)
            return cls(lead, lead / 2)
        return cls(
            timedelta(seconds=min(policy.lead_seconds, _LONGEST_SECONDS)),
            timedelta(seconds=min(policy.escalate_after_seconds, _LONGEST_SECONDS)),
            policy.escalate_to,
        )


@dataclass(frozen=True, slots=True)
class People:
    """Who is in a campaign, by role, and when they are on duty; calendars by sub, by role, or the team's."""

    roles: Mapping[str, str]
    calendars: Mapping[str, Calendar]

    def calendar(self, sub: str) -> Calendar | None:
        """The calendar that counts for *sub*."""
        return calendar_for(sub, self.roles.get(sub), self.calendars)

    @property
    def owners(self) -> list[str]:
        """The owners, by name."""
        return sorted(sub for sub, role in self.roles.items() if role == "owner")

    def reminded_of(self, window: Window) -> list[str]:
        """Whom a reminder goes to: the principal, or the owners where the principal has left the campaign."""
        return [window.principal] if window.principal in self.roles else self.owners

    def called_for(self, window: Window, escalate_to: str | None) -> list[str]:
        """Whom an escalation goes to: *escalate_to*, or the owners where that is nobody of the campaign or was reminded."""
        reminded = self.reminded_of(window)
        if escalate_to in self.roles and escalate_to not in reminded:
            assert escalate_to is not None
            return [escalate_to]
        return [owner for owner in self.owners if owner not in reminded]


@dataclass(frozen=True, slots=True)
class Told:
    """What was done about a window: when the reminder was written, whether others were called, whether it is quiet."""

    reminded_at: datetime | None = None
    escalated: bool = False
    passed: bool = False
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about a window now, and when to look again. *to*: whom to tell; *tell_passed*: that it is over."""

    action: Action
    look_at: datetime
    to: Sequence[str] = ()
    remind_at: datetime | None = None
    escalate_at: datetime | None = None
    tell_passed: bool = False


def step(window: Window, terms: Terms, people: People, told: Told, now: datetime) -> Step:
    """What is to be done about the open *window* at *now*. One thing at a time; look again at `look_at`.

    What is past is only told as past: a window that nobody was told of in time gets no late reminder (`tell_passed`), and
    nothing at all once it is so long past that nobody remembers whether they were.
    """
    end = window.undo_by + GRACE
    if now >= window.undo_by:
        unheard = told.reminded_at is None and not (told.escalated or told.passed or told.acknowledged)
        to = people.reminded_of(window) if unheard and is_remembered(window.undo_by, now) else ()
        return Step("lapse" if now >= end else "wait", end, to, tell_passed=unheard and now >= end and bool(to))
    if told.acknowledged:
        return Step("wait", end)
    readers = people.reminded_of(window)
    called = [] if told.escalated else people.called_for(window, terms.escalate_to)
    remind_at = told.reminded_at or reminder_time(window, terms.lead, _calendar_of(readers, people))
    reminded = told.reminded_at or max(remind_at, now)
    escalate_at = escalation_time(window, reminded, terms.escalate_after, _calendar_of(called, people))
    action: Action = "wait"
    if told.reminded_at is None:
        action, look_at = ("remind", escalate_at) if now >= remind_at else ("wait", remind_at)
    elif called:
        action, look_at = ("escalate", end) if now >= escalate_at else ("wait", escalate_at)
    else:
        look_at = end
    to = {"remind": readers, "escalate": called}.get(action, [])
    return Step(action, min(look_at, end), to, remind_at, escalate_at if called else None)


def reminder_time(window: Window, lead: timedelta, calendar: Calendar | None) -> datetime:
    """When the reminder goes out: on duty and at the latest *lead* before the end, where the window allows both.

    A long lead counts in full minutes, so that one message tells of all the windows of that minute.
    """
    due = max(window.opened_at, window.undo_by - lead)
    moment = _moved(due, window.opened_at, calendar)
    if moment is None:
        return window.opened_at
    if lead < _LONG:
        return moment
    minute = max(window.opened_at, moment.replace(second=0, microsecond=0))
    return minute if calendar is None or next_on_duty(calendar, minute) == minute else moment


def escalation_time(window: Window, reminded: datetime, after: timedelta, calendar: Calendar | None) -> datetime:
    """When others are called: *after* the reminder, in the first half of the time that it left, on duty if that is possible."""
    due = min(reminded + after, reminded + (window.undo_by - reminded) / 2)
    moved = _moved(due, reminded, calendar)
    return due if moved is None else moved


def _moved(due: datetime, since: datetime, calendar: Calendar | None) -> datetime | None:
    """*due*, or an earlier moment on duty; None without any duty after *since*."""
    if calendar is None or next_on_duty(calendar, due) == due:
        return due
    duty = last_duty(calendar, due, since)
    return None if duty is None else max(duty.start, duty.end - HANDOVER)


def _calendar_of(subs: Sequence[str], people: People) -> Calendar | None:
    return people.calendar(subs[0]) if subs else None
