"""The notifier's watch: whatever is due in time is done, for ever, by any number of notifiers side by side (N3, N4, N9)."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import asyncpg
import structlog

from notifier import outgoing
from notifier.lapsing import Lapsing
from notifier.reminding import Reminding
from notifier.roles import Roles
from notifier.windows import Window
from takeback import json
from takeback.calendars import Calendars
from takeback.errors import Problem, words_of

log = structlog.get_logger()
_LOST = (Problem, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class Watch:
    """Looks at least every *poll_seconds*; what it cannot do now, because a server is away, it finds again later."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        reminding: Reminding,
        lapsing: Lapsing,
        roles: Roles,
        calendars: Calendars,
        poll_seconds: float,
    ) -> None:
        self._pool = pool
        self._reminding = reminding
        self._lapsing = lapsing
        self._roles = roles
        self._calendars = calendars
        self._poll_seconds = poll_seconds
        self._lapsed: dict[str, Window] = {}

    async def run(self) -> None:
        """Reminders and escalations, for ever. They ask nobody but the database: a recorder that is away delays none."""
        while True:
            pause = self._poll_seconds
            try:
                await self._look()
                soon = await self._reminding.seconds_to_next()
                pause = pause if soon is None else min(pause, max(0.0, soon))
            except _LOST as error:
                _waits("reminders", error)
            await asyncio.sleep(pause)

    async def tell_journal(self) -> None:
        """What becomes a fact, or needs the newest ones, for ever: what was accepted, what lapsed, whose role changed."""
        while True:
            for part in (self._record, self._lapse, self._roles.tell):
                try:
                    await part()
                except _LOST as error:
                    _waits(part.__name__, error)
            await asyncio.sleep(self._poll_seconds)

    async def read_feeds(self) -> None:
        """Reads the absences that are due, for ever; tells those whose feed cannot be read, once a day."""
        while True:
            try:
                await self._read_feeds()
            except _LOST as error:
                _waits("absences", error)
            await asyncio.sleep(max(1.0, self._poll_seconds))

    async def _look(self) -> None:
        while True:
            looked = await self._reminding.look()
            self._lapsed |= {window.entry: window for window in looked.lapsed}
            if looked.is_all:
                return

    async def _record(self) -> None:
        while await self._lapsing.record_accepted():
            pass

    async def _lapse(self) -> None:
        lapsed, self._lapsed = self._lapsed, {}
        if lapsed:
            await self._lapsing.lapse(list(lapsed.values()))

    async def _read_feeds(self) -> None:
        feeds: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for row in await self._pool.fetch("select campaign, sub, calendar from calendars"):
            calendar = json.loads(row["calendar"])
            if calendar.get("absences") and self._calendars.of(calendar) is not None:
                feeds[calendar["absences"]].append((row["campaign"], row["sub"]))
        changed = await self._calendars.refresh()
        campaigns = {campaign for feed in changed for campaign, _ in feeds[feed]}
        if campaigns:
            await self._pool.execute(
                "update windows set look_at = 'epoch' where state = 'open' and campaign = any($1)", list(campaigns)
            )
        for feed, problem in self._calendars.problems.items():
            for campaign, sub in feeds[feed]:
                await self._tell_unreadable(campaign, sub, feed, problem)

    async def _tell_unreadable(self, campaign: str, sub: str, feed: str, problem: str) -> None:
        """Who is away by *feed* hears that it does not count: their calendar goes on with what was read last."""
        async with self._pool.acquire() as connection, connection.transaction():
            today = await connection.fetchval("select current_date::text")
            message = outgoing.message_id("calendar.unreadable", campaign, sub, feed, today)
            payload = {"sub": sub, "feed": feed, "problem": problem}
            if await outgoing.enqueue(connection, "calendar.unreadable", campaign, sub, message, payload):
                log.warning("absences cannot be read", feed=feed, problem=problem, campaign=campaign)


def _waits(what: str, error: BaseException) -> None:
    log.warning("what is due waits", what=what, error=words_of(error))
