"""Who of those that are told of a window is on duty before it closes (N3, P3). Pure: calendars and the clock are handed in."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Literal

from notifier.escalation import People
from notifier.windows import Window
from takeback.duty import Ahead
from takeback.messages.review import DutyBefore

_NAMED = 5
"""How many people are named for one window, at the most."""


class Duties:
    """The duty of a campaign's *people* from *now* on; *escalate_to* is whom its policy calls, None: the owners."""

    def __init__(self, people: People, escalate_to: str | None, now: datetime) -> None:
        self._people = people
        self._escalate_to = escalate_to
        self._now = now
        self._ahead = cache(self._lay)

    def before(self, window: Window) -> list[DutyBefore]:
        """Whoever is reminded of *window*, then whoever is called when nobody reacts; those without a calendar are left out."""
        told: list[tuple[str, Literal["reminder", "escalation"]]] = [
            *((sub, "reminder") for sub in self._people.reminded_of(window)),
            *((sub, "escalation") for sub in self._people.called_for(window, self._escalate_to)),
        ]
        found = (self._duty(sub, how, window.undo_by) for sub, how in told[:_NAMED])
        return [duty for duty in found if duty is not None]

    def _duty(self, sub: str, told: Literal["reminder", "escalation"], undo_by: datetime) -> DutyBefore | None:
        zone, ahead = self._ahead(sub)
        around = None if ahead is None else ahead.around(undo_by)
        if around is None:
            return None
        return DutyBefore(
            sub=sub,
            told=told,
            zone=zone,
            on_duty_from=around.first,
            on_duty_until=around.last,
            back_at=around.back,
        )

    def _lay(self, sub: str) -> tuple[str, Ahead | None]:
        calendar = self._people.calendar(sub)
        return ("", None) if calendar is None else (calendar.zone.key, Ahead(calendar, self._now))
