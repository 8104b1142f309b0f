"""What is kept for a while only: the feed's tail, unused tickets, repeated requests' answers, sessions, what was delivered."""

from __future__ import annotations

import asyncio

import asyncpg
import structlog

from notifier.console.sessions import Sessions
from notifier.deliveries.ledger import Ledger
from notifier.feed import Feed
from notifier.idempotency import Idempotency
from notifier.tickets import Tickets

log = structlog.get_logger()
_EVERY_SECONDS = 60.0


class Trimming:
    """Lets go of what is too old, once a minute."""

    def __init__(
        self, feed: Feed, tickets: Tickets, idempotency: Idempotency, sessions: Sessions, deliveries: Ledger
    ) -> None:
        self._kept = feed, tickets, idempotency, sessions, deliveries

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                for kept in self._kept:
                    await kept.trim()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                log.warning("trimming waits for the database", error=str(error))
            await asyncio.sleep(_EVERY_SECONDS)
