"""One notifier for each file here, with the journal's stand-in; each test tells a campaign of its own."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from notifier import outgoing
from takeback import json
from takeback.database import connect_pool
from tests.integration.notifier_lab import Lab, Replica, StandInJournal, Story
from tests.servers import Backend, Databases
from tests.waiting import eventually

GM = {"sub": "gm", "kind": "human", "authority": "owner"}
TERMS = {"leadSeconds": 3600, "escalateAfterSeconds": 600, "escalateTo": "cleric"}


@dataclass(slots=True)
class Stage:
    """One notifier for the module, with the journal's stand-in; each test tells a campaign of its own."""

    lab: Lab
    journal: StandInJournal
    replica: Replica
    pool: asyncpg.Pool
    nats_url: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    servers: Backend, migrated_databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp("windows")
    url = await asyncio.to_thread(migrated_databases.create)
    nats = servers.nats(folder / "nats")
    await nats.start()
    lab = Lab(url, nats.url, folder)
    pool = await connect_pool(lab.environ["TAKEBACK_POSTGRES_URL"], "notifier")
    try:
        async with (
            StandInJournal.running(nats.url) as journal,
            lab.notifier(reminder_poll_seconds="0.05") as replica,
        ):
            yield Stage(lab, journal, replica, pool, nats.url)
    finally:
        await pool.close()
        await nats.stop()
        await asyncio.to_thread(migrated_databases.drop, url)


@pytest.fixture
def lab(stage: Stage) -> Lab:
    return stage.lab


@pytest.fixture
def replica(stage: Stage) -> Replica:
    return stage.replica


@pytest.fixture
def pool(stage: Stage) -> asyncpg.Pool:
    return stage.pool


@pytest.fixture
def journal(stage: Stage) -> StandInJournal:
    return stage.journal


@pytest.fixture
def nats_url(stage: Stage) -> str:
    return stage.nats_url


@pytest_asyncio.fixture(loop_scope="module")
async def story(journal: StandInJournal) -> Story:
    story = Story(journal)
    await story.begin(rogue="member", cleric="approver")
    return story


class Post:
    """A stand-in for whoever delivers: reads the messages, and has one accepted when a test says so."""

    def __init__(self, pool: asyncpg.Pool, campaign: str) -> None:
        self._pool = pool
        self._campaign = campaign

    async def messages(self, kind: str | None = None) -> list[dict[str, Any]]:
        rows = await self._pool.fetch(
            "select * from outgoing where campaign = $1 and (kind = $2 or $2 is null) order by created_at",
            self._campaign, kind,
        )  # fmt: skip
        return [{**row, "payload": json.loads(row["payload"])} for row in rows]

    async def told(self, kind: str) -> list[tuple[str, str]]:
        """(recipient, entry) of all messages of *kind*."""
        return [
            (message["recipient"], window["entry"])
            for message in await self.messages(kind)
            for window in message["payload"]["windows"]
        ]

    async def deliver(self, kind: str, at: datetime | None = None) -> None:
        """Waits for the messages of *kind*, and has them accepted."""
        for message in await eventually(lambda: self.messages(kind)):
            async with self._pool.acquire() as connection, connection.transaction():
                await outgoing.accepted(connection, message["id"], at)


@pytest.fixture
def post(pool: asyncpg.Pool, story: Story) -> Post:
    return Post(pool, story.campaign)


async def policy(story: Story, **terms: Any) -> None:
    await story.tell("policy.changed", {"campaign": story.campaign, "policy": {"reminders": TERMS | terms}, "by": GM})


async def records(story: Story, kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in story.journal.streams[story.campaign] if event["type"].endswith(kind)]


async def looked(pool: asyncpg.Pool, *entries: str, within: float) -> None:
    """Waits until a notifier has looked at the windows of *entries* since they close *within* so many seconds."""
    question = (
        "select count(*) = $2 from windows where entry = any($1) and look_at > 'epoch' "
        "and undo_by < clock_timestamp() + make_interval(secs => $3)"
    )
    await eventually(lambda: pool.fetchval(question, list(entries), len(entries), within))


async def lapsed(story: Story, entry: str) -> dict[str, Any]:
    """The record of how the window of *entry* lapsed."""

    async def found() -> list[dict[str, Any]]:
        return [data for data in await records(story, "window.lapsed") if data["entry"] == entry]

    return (await eventually(found))[0]


async def closed_in_review(lab: Lab, replica: Replica, story: Story, entry: str) -> tuple[str, str | None]:
    answer = await replica.http.get(f"/v1/runs/{story.run}/review", headers=lab.token("paladin"))
    item = next(item for item in answer.json()["closed"] if item["entry"] == entry)
    return item["lapsed"], item["acknowledgedBy"]
