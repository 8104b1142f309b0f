"""A changed role tells those whose runs can still be taken back who may do it now (N9)."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import asyncpg

from notifier import agenda, announcements, outgoing
from notifier.agenda import RoleChange
from notifier.escalation import People
from notifier.feed import Transaction
from notifier.windows import Window
from takeback.authority import authority_over
from takeback.inbox import Inbox
from takeback.messages.campaign import Role
from takeback.messages.events import Event
from takeback.messages.review import AuthorityChanged
from takeback.subjects import TYPE_PREFIX

_OPEN = "select * from windows where campaign = $1 and state = 'open' and undo_by > clock_timestamp() order by undo_by, entry"


class Roles:
    """Tells of changed roles once the projection has everything that the journal held when they changed."""

    def __init__(
        self, pool: asyncpg.Pool, inbox: Inbox, catch_up_seconds: float, announced: Callable[[str], None]
    ) -> None:
        """*announced* is told of each campaign in which something was announced."""
        self._pool = pool
        self._inbox = inbox
        self._catch_up_seconds = catch_up_seconds
        self._announced = announced

    async def tell(self) -> int:
        """Tells of every change that is due; answers of how many. Raises `Problem` when the recorder is away."""
        rows = await self._pool.fetch("select id, campaign from role_changes order by at")
        for campaign in dict.fromkeys(row["campaign"] for row in rows):
            await self._inbox.catch_up(campaign, self._catch_up_seconds)
        for row in rows:
            async with self._pool.acquire() as connection, connection.transaction():
                taken = await connection.fetchrow(
                    "select * from role_changes where id = $1 for update skip locked", row["id"]
                )
                if taken is not None:
                    await _tell(connection, RoleChange(*taken))
                    await connection.execute("delete from role_changes where id = $1", row["id"])
            self._announced(row["campaign"])
        return len(rows)


def affected(change: RoleChange, windows: Sequence[Window]) -> dict[str, list[Window]]:
    """The windows over which the change gave or took authority, by run."""
    runs: dict[str, list[Window]] = defaultdict(list)
    for one in windows:
        before, after = (
            authority_over(change.sub, cast(Role | None, role), one.principal, one.undo_authority)
            for role in (change.was, change.role)
        )
        if before != after:
            runs[one.run].append(one)
    return runs


def entitled(windows: Sequence[Window], roles: Mapping[str, str]) -> list[str]:
    """Who may take back any of *windows*."""
    return sorted(
        sub
        for sub, role in roles.items()
        if any(authority_over(sub, cast(Role, role), one.principal, one.undo_authority) for one in windows)
    )


async def _tell(connection: Transaction, change: RoleChange) -> None:
    windows = [agenda.window(row) for row in await connection.fetch(_OPEN, change.campaign)]
    roles = {
        row["sub"]: row["role"]
        for row in await connection.fetch("select sub, role from members where campaign = $1", change.campaign)
    }
    people = People(roles, {})
    now: datetime = await connection.fetchval("select clock_timestamp()")
    told: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run, group in affected(change, windows).items():
        data = AuthorityChanged(
            run=run,
            campaign=change.campaign,
            principal=group[0].principal,
            sub=change.sub,
            was=change.was,
            role=change.role,
            open=len(group),
            next_deadline=group[0].undo_by,
            by=entitled(group, roles),
        )
        await announcements.announce(connection, change.campaign, _event(change, data, now))
        for reader in people.reminded_of(group[0]):
            told[reader].append(data.wire())
    for reader, runs in told.items():
        payload = {"sub": change.sub, "was": change.was, "role": change.role, "by": change.by, "runs": runs}
        message = outgoing.message_id("role.changed", change.id, reader)
        await outgoing.enqueue(connection, "role.changed", change.campaign, reader, message, payload)


def _event(change: RoleChange, data: AuthorityChanged, at: datetime) -> Event:
    digest = hashlib.sha256("\0".join(("review.authority_changed", change.id, data.run)).encode()).hexdigest()[:32]
    return Event(
        id=f"ntf_{digest}",
        source=f"/campaigns/{change.campaign}",
        type=f"{TYPE_PREFIX}review.authority_changed",
        subject=data.run,
        time=at,
        data=data.wire(),
    )
