"""What is kept for a while only (decision 0022): the feed, tickets, sessions, what was answered and what was told."""

from __future__ import annotations

import asyncio
from typing import Protocol

import asyncpg
import structlog

log = structlog.get_logger()
_EVERY_SECONDS = 60.0


class Kept(Protocol):
    """A table, or several, that knows how long it keeps what."""

    async def trim(self) -> None:
        """Lets go of what is too old."""


class Trimming:
    """Lets go of what is too old, once a minute."""

    def __init__(self, *kept: Kept) -> None:
        self._kept = kept

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                for kept in self._kept:
                    await kept.trim()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                log.warning("trimming waits for the database", error=str(error))
            await asyncio.sleep(_EVERY_SECONDS)
