"""When open windows close, when somebody is told, and who of them is on duty before (N3, P3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

import asyncpg

from notifier import agenda
from notifier.duties import Duties
from notifier.feed import Transaction
from takeback.calendars import Calendars
from takeback.messages.review import Deadline

_OPEN = """
select * from windows where campaign = $1 and entry = any($2) and state = 'open' and undo_by > $3 order by undo_by, entry
"""


class Deadlines:
    """Reads the notifier's windows with the calendars of the people whom they concern."""

    def __init__(self, calendars: Calendars) -> None:
        self._calendars = calendars

    async def of(
        self,
        connection: asyncpg.Pool | Transaction,
        campaign: str,
        entries: Collection[str],
        now: datetime,
        *,
        with_duty: bool,
    ) -> Mapping[str, Deadline]:
        """The open windows of *entries*, by entry, the first to close first; *with_duty*: who is told is policy, and kept
        from agents."""
        rows = await connection.fetch(_OPEN, campaign, list(entries), now)
        if not rows:
            return {}
        policy = (await agenda.policies(connection, [campaign])).get(campaign)
        people = (await agenda.people(connection, [campaign], self._calendars))[campaign]
        duties = Duties(people, None if policy is None else policy.escalate_to, now)
        return {
            row["entry"]: Deadline(
                entry=row["entry"],
                undo_by=row["undo_by"],
                remind_at=row["remind_at"],
                escalate_at=row["escalate_at"],
                duty=duties.before(agenda.window(row)) if with_duty else [],
            )
            for row in rows
        }
