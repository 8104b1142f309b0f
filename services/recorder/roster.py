"""Who could take a call back in time: those with authority over it, and when they are on duty (P3). Pure but for its clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

from takeback.authority import authority_over
from takeback.calendars import Calendars
from takeback.duty import calendar_for, next_on_duty
from takeback.messages.campaign import Role


@dataclass(frozen=True, slots=True)
class Roster:
    """A campaign's members by sub, and its calendars' documents by the name that each was set under.

    *now* is the database's clock.
    """

    members: Mapping[str, Role]
    documents: Mapping[str, Mapping[str, Any]]
    calendars: Calendars
    now: Callable[[], datetime]

    def attended_in(self, principal: str, undo_authority: str | None) -> float | None:
        """In how many seconds somebody is on duty who may take back a call of *principal*: 0 now, infinity never.

        None where none of them has a calendar, so that nobody can say; who has none beside others who do does not count.
        """
        known = self.calendars.all(self.documents)
        if not known:
            return None
        now = self.now()
        soonest: float | None = None
        for sub, role in self.members.items():
            calendar = calendar_for(sub, role, known)
            if calendar is None or authority_over(sub, role, principal, undo_authority) is None:
                continue
            on_duty = next_on_duty(calendar, now)
            seconds = inf if on_duty is None else (on_duty - now).total_seconds()
            soonest = seconds if soonest is None else min(soonest, seconds)
        return soonest
