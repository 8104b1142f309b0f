"""Who of those that are told of a window is on duty before it closes (N3, P3). Pure: calendars and the clock are handed in."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from notifier.escalation import People
from notifier.windows import Window
from takeback.duty import around
from takeback.messages.review import DutyBefore

_NAMED = 5
"""How many people are named for one window, at the most."""


def duties(window: Window, people: People, escalate_to: str | None, now: datetime) -> list[DutyBefore]:
    """Whoever is reminded of *window*, then whoever is called when nobody reacts; those without a calendar are left out."""
    told: list[tuple[str, Literal["reminder", "escalation"]]] = [
        *((sub, "reminder") for sub in people.reminded_of(window)),
        *((sub, "escalation") for sub in people.called_for(window, escalate_to)),
    ]
    found = (_duty(sub, how, window, people, now) for sub, how in told[:_NAMED])
    return [duty for duty in found if duty is not None]


def _duty(
    sub: str, told: Literal["reminder", "escalation"], window: Window, people: People, now: datetime
) -> DutyBefore | None:
    calendar = people.calendar(sub)
    found = None if calendar is None else around(calendar, now, window.undo_by)
    if calendar is None or found is None:
        return None
    return DutyBefore(
        sub=sub,
        told=told,
        zone=calendar.zone.key,
        on_duty_from=found.first,
        on_duty_until=found.last,
        back_at=found.back,
    )
