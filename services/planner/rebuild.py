"""`takeback rebuild planner`: the graph, the links and the plans again, from the journal alone."""

from __future__ import annotations

from collections.abc import Mapping

from planner.projection import apply, forget
from planner.settings import Settings
from planner.tables import PROJECTION
from takeback import bus, inbox
from takeback.database import connect_pool
from takeback.inbox import Inbox
from takeback.rpc import Rpc


async def rebuild(environ: Mapping[str, str]) -> str:
    """Drops the planner's projection and reads the journal from its first record; answers a line that says so.

    A recorder must be running. Raises `Problem` 503 when none answers: then run it again.
    """
    settings = Settings.of(environ)
    pool = await connect_pool(settings.postgres_url, "planner")
    client = await bus.connect(settings.nats_url, "takeback rebuild planner")
    try:
        await inbox.rebuild(pool, list(PROJECTION), Inbox(pool, Rpc(client), "planner", apply, forget))
        entries, plans, streams = (
            await pool.fetchval("select count(*) from entries"),
            await pool.fetchval("select count(distinct plan) from plan_facts"),
            await pool.fetchval("select count(*) from positions"),
        )
    finally:
        await client.close()
        await pool.close()
    return f"planner: {entries} entries and {plans} plans, read again from {streams} streams"
