"""The calendar: meetings with attendees. Taking a meeting back cannot be silent: they get a cancellation notice."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import aiosmtplib
import asyncpg
import structlog

from examples.deal.post import Post
from takeback.toolserver import Call, PostgresStore, Record, ToolServer
from takeback.toolserver.record import Tx

log = structlog.get_logger()
LOOK_SECONDS = 2.0


def calendar_server(pool: asyncpg.Pool[Any]) -> ToolServer:
    """The calendar's tools; *pool*'s search path is the schema `calendar`."""
    server = ToolServer("calendar", store=PostgresStore(pool))
    meeting = _meeting(server)

    @server.operation(
        record=meeting,
        tier="medium",
        window="P7D",
        uses=["crm://acme/deal/{deal_id}"],
        side_effects=["The attendees get an invitation."],
        undo_side_effects=["The attendees get a cancellation notice."],
    )
    async def create_meeting(
        tx: Tx, deal_id: str, title: str, starts_at: datetime, attendees: list[str]
    ) -> dict[str, Any]:
        """Put a meeting about a deal into the calendar and invite its attendees."""
        meeting_id = f"m-{secrets.token_hex(4)}"
        await tx.execute(
            "insert into meetings values ($1, $2, $3, $4, $5)", meeting_id, deal_id, title, starts_at, attendees
        )
        await _write_letters(
            tx, attendees, f"Invitation: {title}", f"You are invited: {title}, {starts_at:%d %B, %H:%M}."
        )
        return {"meetingId": meeting_id, "title": title, "attendees": attendees}

    return server


def _meeting(server: ToolServer) -> Record:
    record = server.record("calendar://acme/meeting/{meeting_id}", version="version")

    @record.read
    async def read(tx: Tx, meeting_id: str) -> dict[str, Any] | None:
        row = await tx.fetchrow(
            "select deal, title, starts_at, attendees, version from meetings where id = $1 for update", meeting_id
        )
        return dict(row) if row else None

    @record.restore
    async def restore(
        tx: Tx, call: Call, meeting_id: str, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        if before is None:
            assert after is not None
            await tx.execute("delete from meetings where id = $1", meeting_id)
            await _write_letters(
                tx, after["attendees"], f"Cancelled: {after['title']}", "This meeting will not take place."
            )
            call.side_effect(f"{', '.join(after['attendees'])}: cancellation notice for {after['title']}.")
            return
        await tx.execute(
            "insert into meetings values ($1, $2, $3, $4, $5) on conflict (id) do update set "
            "title = excluded.title, starts_at = excluded.starts_at, attendees = excluded.attendees",
            *(meeting_id, before["deal"], before["title"]),
            *(datetime.fromisoformat(before["starts_at"]), before["attendees"]),
        )
        await _write_letters(
            tx, before["attendees"], f"Invitation: {before['title']}", "This meeting takes place after all."
        )
        call.side_effect(f"{', '.join(before['attendees'])}: invitation to {before['title']}.")

    return record


async def _write_letters(tx: Tx, recipients: list[str], subject: str, body: str) -> None:
    """A letter exists exactly when its meeting's change does: it is posted after the commit."""
    await tx.executemany(
        "insert into letters (recipient, subject, body) values ($1, $2, $3)",
        [(recipient, subject, body) for recipient in recipients],
    )
    await tx.execute("notify calendar_letters")


@asynccontextmanager
async def posting_letters(pool: asyncpg.Pool[Any], post: Post) -> AsyncIterator[None]:
    """Post what the calendar has written to attendees, as soon as it is committed, until the context ends."""
    written = asyncio.Event()
    written.set()
    async with pool.acquire() as listener:

        def on_written(*_: object) -> None:
            written.set()

        await listener.add_listener("calendar_letters", on_written)
        task = asyncio.create_task(_post_all(pool, post, written))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await listener.remove_listener("calendar_letters", on_written)


async def _post_all(pool: asyncpg.Pool[Any], post: Post, written: asyncio.Event) -> None:
    while True:
        with contextlib.suppress(TimeoutError):  # the notice may be lost with its connection: look by itself, too
            await asyncio.wait_for(written.wait(), LOOK_SECONDS)
        written.clear()
        try:
            await _post_written(pool, post)
        except (aiosmtplib.SMTPException, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            log.warning("letters wait for the next look", error=str(error))


async def _post_written(pool: asyncpg.Pool[Any], post: Post) -> None:
    for letter in await pool.fetch("select * from letters where posted_at is null order by id"):
        await post.send(letter["recipient"], letter["subject"], letter["body"], f"letter-{letter['id']}")
        await pool.execute("update letters set posted_at = now() where id = $1", letter["id"])
