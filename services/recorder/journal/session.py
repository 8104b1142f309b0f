"""A database session of the journal, and the proof that a lost one has ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from recorder.journal.unavailable import JournalUnavailable
from takeback.database import driver_url, session_settings

SCHEMA = "recorder"
SESSION = "select pid, backend_start from pg_stat_get_activity(pg_backend_pid())"
"""Who a session is to the server; what stands under `pg_stat_activity`, whose joins cost more than all the rest of it."""

# PostgreSQL planned scans of `entries` on conclusions as soon as it had statistics of a small table.
_PLANNER = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off"}


@dataclass(frozen=True, slots=True)
class Session:
    """A connection and who it is to the server."""

    connection: asyncpg.Connection
    pid: int
    started: datetime

    async def close(self) -> None:
        """Say goodbye to the server."""
        await self.connection.close()


async def connect_session(url: str) -> Session:
    """A connection set up for append_v1; raises `JournalUnavailable` when there is none to be had."""
    settings = {**session_settings(SCHEMA), **_PLANNER, "plan_cache_mode": "force_generic_plan"}
    try:
        connection = await asyncpg.connect(driver_url(url), server_settings=settings, timeout=5)
        row = await connection.fetchrow(SESSION, timeout=5)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise JournalUnavailable(
            f"The journal cannot be reached: {error}. Nothing was written.", written=False
        ) from error
    assert row is not None  # a session sees itself
    return Session(connection, row["pid"], row["backend_start"])


async def end_session(url: str, lost: Session) -> Session:
    """A new session, once *lost* can no longer commit anything: it is ended and seen to be gone.

    Raises `JournalUnavailable` while the server cannot be reached; waits for as long as the old session lives.
    """
    while True:
        try:
            session = await connect_session(url)
        except JournalUnavailable:
            await asyncio.sleep(0.05)
            continue
        try:
            await _end(session.connection, lost)
        except BaseException:
            session.connection.terminate()
            raise
        return session


async def _end(connection: asyncpg.Connection, lost: Session) -> None:
    while await connection.fetchval(  # noqa: ASYNC110 (the server is asked, there is nothing to wait on)
        "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and backend_start = $2",
        lost.pid,
        lost.started,
    ):
        await asyncio.sleep(0.01)
