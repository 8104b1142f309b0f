"""Units for tests of the journal, and journals on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from recorder.journal import (
    EntryChange,
    Fence,
    Journal,
    NewRecord,
    ResourceUse,
    Unit,
)
from recorder.journal.unit import Status
from takeback import json
from takeback.database import connect_pool, service_url
from takeback.ids import new_id


@asynccontextmanager
async def journal_on(postgres_url: str, **options: Any) -> AsyncIterator[tuple[Journal, asyncpg.Pool]]:
    """A started journal and its pool, as the recorder's own role."""
    url = service_url(postgres_url, "recorder")
    pool = await connect_pool(url, "recorder", minimum=1, maximum=4)
    journal = Journal(url, pool, **options)
    await journal.start()
    try:
        yield journal, pool
    finally:
        await journal.stop()
        await pool.close()


def opened(run: str, campaign: str = "cmp_1") -> Unit:
    """The unit that opens *run*."""
    return Unit([NewRecord(run, campaign, new_id("rec"), "run.opened", b'{"run":1}', published=True)])


def body(status: str, entry: str, run: str, campaign: str, **more: Any) -> bytes:
    """The body of a record about an entry."""
    view = {
        "id": entry,
        "run": run,
        "campaign": campaign,
        "server": "crm",
        "operation": "move",
        "kind": "call",
        "principal": "ann",
        "agent": "bot",
        "status": status,
        "undo": {"kind": "compensate", "compensationToken": {"sealed": "c2VjcmV0"}},
        **more,
    }
    return json.dumps(
        {"entry": view, "resources": [{"resource": f"crm://{entry}", "role": "changes", "version": None}]}
    )


def change(
    status: Status,
    *,
    entry: str,
    run: str,
    campaign: str = "cmp_1",
    expect: Sequence[Status] | None = None,
    key: str | None = None,
    reverts: str | None = None,
    fence: int | None = None,
    record: str | None = None,
    published: bool = False,
    **options: Any,
) -> Unit:
    """The unit that makes *entry* (or takes it from one of *expect*) *status*; its record is published where that is said."""
    return Unit(
        [
            NewRecord(
                run,
                campaign,
                record or new_id("rec"),
                f"entry.{status}",
                body(status, entry, run, campaign),
                published=published,
                entry=entry,
            )
        ],
        [
            EntryChange(
                id=entry,
                status=status,
                run=run,
                campaign=campaign,
                server="crm",
                operation="move",
                kind="call",
                principal="ann",
                agent="bot",
                expect=expect,
                serial_key=key,
                reverts=reverts,
                concluded=status in {"committed", "failed"},
            )
        ],
        [ResourceUse(entry, f"crm://{entry}", "changes", campaign)] if expect is None else [],
        fence=Fence(key, fence) if key else None,
        **options,
    )
