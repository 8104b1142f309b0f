"""How late reminders are while 100,000 windows are open (N3): from the time that one was due to its message being written."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg

from takeback import json
from takeback.bus import connect, provision_streams
from takeback.database import migrate, service_url
from takeback.embedded.nats import EmbeddedNats
from takeback.embedded.postgres import EmbeddedPostgres
from takeback.keys import ensure_keys
from tests.processes import TakebackProcess

OPEN = 100_000
DUE = 2_000
WITHIN_SECONDS = 10
_PEOPLE = 100
_ENTRIES = """
insert into notifier.entries (entry, run, campaign, place, kind, status, view, server, operation, model, undo_kind, undo_by)
select 'ent_' || $1 || n, 'run_' || n % 1000, 'cmp_1', n, 'call', 'committed', $2, 'crm', 'set_stage', 'm', 'compensate',
    null from generate_series(1, $3) as n
"""
_WINDOWS = """
insert into notifier.windows (entry, run, campaign, principal, opened_at, undo_by, state)
select 'ent_' || $1 || n, 'run_' || n % 1000, 'cmp_1', 'person-' || n % $2, now() - interval '1 day',
    clock_timestamp() + make_interval(secs => $3) + n * make_interval(secs => $4), 'open' from generate_series(1, $5) as n
"""
_LATE = """
select extract(epoch from outgoing.created_at - (told.undo_by - interval '300 seconds'))::float8 as late
from notifier.told join notifier.outgoing on outgoing.id = told.message where told.kind = 'reminder'
"""


async def measure(folder: Path) -> None:
    """Prints how long it takes to lay out the windows, and how late the reminders are."""
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "postgres"))
        nats = await stack.enter_async_context(EmbeddedNats(folder / "nats"))
        ensure_keys(folder / "keys")
        passwords = {"TAKEBACK_NOTIFIER_PASSWORD": "bench"}
        await migrate(postgres.url, passwords)
        client = await connect(nats.url, "bench")
        await provision_streams(client.jetstream())
        await client.close()
        database = await asyncpg.connect(postgres.url)
        stack.push_async_callback(database.close)
        await _people(database)
        await _windows(database, "a", OPEN, 86400, 10)
        environ = {
            "TAKEBACK_POSTGRES_URL": service_url(postgres.url, "notifier", passwords),
            "TAKEBACK_NATS_URL": nats.url,
            "TAKEBACK_KEYS_DIR": str(folder / "keys"),
        }
        began = time.monotonic()
        await stack.enter_async_context(TakebackProcess("serve", "notifier", "--port", "0", environ=environ))
        while await database.fetchval("select exists (select from notifier.windows where look_at <= now())"):
            await asyncio.sleep(0.1)
        laid_out = time.monotonic() - began
        await _windows(database, "b", DUE, 300 + 2, WITHIN_SECONDS / DUE)
        async with asyncio.timeout(60):
            while await database.fetchval("select count(*) from notifier.told") < DUE:
                await asyncio.sleep(0.1)
        late = [row["late"] for row in await database.fetch(_LATE)]
    p50, p99 = statistics.median(late), statistics.quantiles(late, n=100)[-1]
    print(f"  {OPEN:,} open windows laid out in {laid_out:.1f} s, the notifier's start included")
    print(
        f"  {DUE:,} reminders within {WITHIN_SECONDS} s: p50 {p50:.2f} s, p99 {p99:.2f} s, last {max(late):.2f} s late"
    )


async def _people(database: asyncpg.Connection) -> None:
    await database.execute(
        "insert into notifier.members select 'cmp_1', 'person-' || n, 'member', null from generate_series(0, $1) as n",
        _PEOPLE,
    )
    await database.execute("insert into notifier.members values ('cmp_1', 'boss', 'owner', null)")
    await database.execute("insert into notifier.reminder_policies values ('cmp_1', 300, 3600, 'boss')")
    weekly = {day: [["00:00", "24:00"]] for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")}
    calendar = json.dumps({"zone": "Europe/Berlin", "weekly": weekly, "holidays": None, "absences": None})
    await database.execute("insert into notifier.calendars values ('cmp_1', 'team', $1)", calendar)


async def _windows(database: asyncpg.Connection, name: str, count: int, first: float, apart: float) -> None:
    """*count* windows that close from *first* seconds on, *apart* seconds from each other."""
    view = json.dumps({"label": "e1", "server": "crm", "operation": "set_stage", "agent": "bot", "effect": None})
    await database.execute(_ENTRIES, name, view, count)
    await database.execute(_WINDOWS, name, _PEOPLE, first, apart, count)
    await database.execute("analyze notifier.windows")
