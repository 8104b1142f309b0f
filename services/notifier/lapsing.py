"""What becomes a fact of the journal: messages about windows that were accepted, and windows that lapsed (N4).

Record ids follow from what happened, so whatever two notifiers say at once, or one says again after a crash, is written once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import asyncpg
import structlog

from notifier import agenda
from notifier.review import how_it_lapsed
from notifier.windows import Notice, Window
from takeback.errors import Problem
from takeback.inbox import Inbox
from takeback.messages.review import Acknowledgement, Lapsed
from takeback.rpc import Rpc
from takeback.subjects import RPC_APPEND

log = structlog.get_logger()
_SYSTEM = {"sub": "notifier", "kind": "system"}
_AT_ONCE = 50
_MESSAGES = 20
_UNRECORDED = """
select id, campaign, recipient, accepted_at from outgoing where accepted_at is not null and recorded_at is null
order by accepted_at limit $1 for update skip locked
"""
_TOLD = """
select told.message, told.entry, told.undo_by, told.kind, windows.run
from told left join windows on windows.entry = told.entry where told.message = any($1) and told.kind <> 'passed'
"""
_STILL_OPEN = "select * from windows where entry = any($1) and state = 'open'"
_UNSETTLED_SECONDS = 5.0
_LOOK_SOON = "update windows set look_at = clock_timestamp() + make_interval(secs => $2) where entry = any($1)"


class Lapsing:
    """Appends through the recorder; what it cannot append now is found again later."""

    def __init__(self, pool: asyncpg.Pool, rpc: Rpc, inbox: Inbox, catch_up_seconds: float) -> None:
        self._pool = pool
        self._rpc = rpc
        self._inbox = inbox
        self._catch_up_seconds = catch_up_seconds
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def record_accepted(self) -> bool:
        """Tells the journal which windows somebody has heard of since; whether there may be more.

        Raises `Problem` when the recorder is away: the messages stay unrecorded, and are recorded later.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            messages = {row["id"]: row for row in await connection.fetch(_UNRECORDED, _MESSAGES)}
            if not messages:
                return False
            told = await connection.fetch(_TOLD, list(messages))
            await asyncio.gather(*(self._reached(messages[row["message"]], row) for row in told if row["run"]))
            await connection.execute(
                "update outgoing set recorded_at = clock_timestamp() where id = any($1)", list(messages)
            )
        return len(messages) == _MESSAGES

    async def lapse(self, windows: Sequence[Window]) -> None:
        """Has the journal say how each of *windows* went by, unless it was taken back just in time.

        Raises `Problem` when the recorder is away: they come due again.
        """
        by_campaign: dict[str, list[str]] = defaultdict(list)
        for one in windows:
            by_campaign[one.campaign].append(one.entry)
        for campaign, entries in by_campaign.items():
            heads = await self._inbox.catch_up(campaign, self._catch_up_seconds)
            unsettled = {item["entry"]["id"] for item in heads["unsettled"]}
            await self._lapse(campaign, [entry for entry in entries if entry not in unsettled])
            if waiting := unsettled & set(entries):
                await self._pool.execute(_LOOK_SOON, list(waiting), _UNSETTLED_SECONDS)

    async def _lapse(self, campaign: str, entries: Sequence[str]) -> None:
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            windows = [agenda.window(row) for row in await connection.fetch(_STILL_OPEN, entries)]
            seen = await agenda.seen(connection, windows)
            notices: dict[str, list[Notice]] = defaultdict(list)
            for notice in await agenda.notices(connection, [one.entry for one in windows]):
                notices[notice.entry].append(notice)
        if not windows:
            return
        told = [how_it_lapsed(one.entry, one.undo_by, _of(one, seen), notices[one.entry]) for one in windows]
        await asyncio.gather(*(self._went_by(one, *how) for one, how in zip(windows, told, strict=True)))
        log.info("windows lapsed", campaign=campaign, windows=len(windows))
        await self._inbox.catch_up(campaign, self._catch_up_seconds)

    async def _reached(self, message: asyncpg.Record, told: asyncpg.Record) -> None:
        type_ = "window.reminded" if told["kind"] == "reminder" else "window.escalated"
        undo_by = told["undo_by"].isoformat()
        body = {
            "run": told["run"],
            "entry": told["entry"],
            "undoBy": undo_by,
            "recipient": message["recipient"],
            "deliveredAt": message["accepted_at"].isoformat(),
        }
        await self._append(message["campaign"], type_, body, told["entry"], undo_by, message["recipient"])

    async def _went_by(self, window: Window, how: Lapsed, acknowledged_by: str | None) -> None:
        undo_by = window.undo_by.isoformat()
        body = {
            "run": window.run,
            "entry": window.entry,
            "undoBy": undo_by,
            "how": how,
            "acknowledgedBy": acknowledged_by,
        }
        await self._append(window.campaign, "window.lapsed", body, window.entry, undo_by)

    async def _append(self, campaign: str, type_: str, body: dict[str, Any], *happened: str) -> None:
        record = "win_" + hashlib.sha256("\0".join((type_, *happened)).encode()).hexdigest()[:32]
        wanted = {"id": record, "type": type_, "campaign": campaign, "by": _SYSTEM, "body": body}
        async with self._slots:
            try:
                await self._rpc.request(RPC_APPEND, wanted)
            except Problem as problem:
                if problem.status != 404:
                    raise
                log.warning("a window of an entry that the journal does not have", entry=body["entry"], type=type_)


def _of(window: Window, seen: dict[str, list[tuple[str, Any]]]) -> list[Acknowledgement]:
    return [Acknowledgement(by=by, at=at, entries=[window.entry]) for by, at in seen.get(window.entry, [])]
