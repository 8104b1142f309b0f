"""Two notifiers side by side, one killed while it delivers: nothing lost, nothing doubled but what is documented (N7)."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

import asyncpg
import httpx

from tests.integration.notifier_lab import Lab, StandInJournal, Story
from tests.integration.receivers import HookServer
from tests.processes import TakebackProcess
from tests.waiting import eventually

EVENTS = 30


async def test_what_a_killed_notifier_had_in_hand_is_delivered_by_the_other_one(
    postgres_url: str, nats_url: str, tmp_path: Path
) -> None:
    """N7: only what was on its way to the receiver when the process died is sent twice, under the same id."""
    lab = Lab(postgres_url, nats_url, tmp_path)
    lab.environ |= {
        "TAKEBACK_WEBHOOK_ALLOW_PRIVATE": "1",
        "TAKEBACK_DELIVERY_DEADLINE_SECONDS": "5",
        "TAKEBACK_DELIVERY_POLL_SECONDS": "0.05",
    }
    async with HookServer.running() as hooks, StandInJournal.running(nats_url) as journal:
        story = Story(journal)
        await story.begin()
        serve = ("serve", "notifier", "--port", "0")
        async with (
            TakebackProcess(*serve, environ=lab.environ) as first,
            TakebackProcess(*serve, environ=lab.environ),
            httpx.AsyncClient(base_url=first.url, headers=lab.token("gm")) as owner,
        ):
            body = {"url": f"{hooks.url}/ops", "types": ["entry.committed"]}
            named = await owner.put(f"/v1/campaigns/{story.campaign}/webhooks/ops", json=body)
            assert named.status_code == 200, named.text
            hooks.holds["/ops"] = asyncio.Event()
            entries = [await story.call() for _ in range(EVENTS)]
            database = await asyncpg.connect(postgres_url)
            on_their_way = await eventually(lambda: _in_two_hands(database, hooks))
            await first.end(signal.SIGKILL)
            hooks.holds.pop("/ops").set()
            await eventually(lambda: _all_accepted(database))
            await database.close()
    ids = Counter(request.id for request in hooks.requests)
    told = {request.event["data"]["entry"]["id"]: request.id for request in hooks.requests}
    assert told.keys() == set(entries)
    assert len(ids) == EVENTS
    assert {one for one, count in ids.items() if count > 1} <= on_their_way
    assert max(ids.values()) <= 2


async def _in_two_hands(database: asyncpg.Connection, hooks: HookServer) -> set[str] | None:
    """What both notifiers have taken, once each has: a receiver that answers nothing is given no more. It has come by then."""
    taken = await database.fetch("select id, due_at from notifier.deliveries where attempts > 0")
    came = {request.id for request in hooks.requests}
    both_have_some = len({row["due_at"] for row in taken}) == 2
    return came if both_have_some and came == {row["id"] for row in taken} else None


async def _all_accepted(database: asyncpg.Connection) -> bool:
    count: int = await database.fetchval("select count(*) from notifier.deliveries where status = 'accepted'")
    return count == EVENTS
