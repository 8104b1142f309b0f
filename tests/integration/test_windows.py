"""Windows in time: who is told when, what is recorded of it, and how a window lapsed (N3, N4, N8, N9)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from notifier import outgoing
from notifier.remembering import KEPT
from takeback import json
from takeback.database import connect_pool
from takeback.ids import new_id
from tests.integration.notifier_lab import Lab, Replica, StandInJournal, Story, subscribed
from tests.servers import Backend, Databases
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
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


async def lapsed(story: Story, entry: str) -> dict[str, Any]:
    """The record of how the window of *entry* lapsed."""

    async def found() -> list[dict[str, Any]]:
        return [data for data in await records(story, "window.lapsed") if data["entry"] == entry]

    return (await eventually(found))[0]


async def closed_in_review(lab: Lab, replica: Replica, story: Story, entry: str) -> tuple[str, str | None]:
    answer = await replica.http.get(f"/v1/runs/{story.run}/review", headers=lab.token("paladin"))
    item = next(item for item in answer.json()["closed"] if item["entry"] == entry)
    return item["lapsed"], item["acknowledgedBy"]


async def test_a_reminder_goes_out_the_lead_before_and_an_approver_is_called_when_nobody_reacts(
    replica: Replica, story: Story, post: Post, pool: asyncpg.Pool
) -> None:
    """N3: per campaign a lead, an escalation and a named approver; each told once."""
    await policy(story)
    soon, later = await story.call(seconds=1800), await story.call(seconds=7200)
    await eventually(lambda: post.told("window.reminder"))
    assert await post.told("window.reminder") == [("paladin", soon)]
    row = await eventually(
        lambda: pool.fetchrow("select * from windows where entry = $1 and remind_at is not null", later)
    )
    assert timedelta(0) <= row["undo_by"] - timedelta(hours=1) - row["remind_at"] < timedelta(minutes=1)
    [message] = await post.messages("window.reminder")
    assert message["payload"]["windows"][0]["operation"] == "damage_creature"
    await policy(story, escalateAfterSeconds=1)
    await eventually(lambda: post.told("window.escalation"))
    assert await post.told("window.escalation") == [("cleric", soon)]
    assert await post.told("window.reminder") == [("paladin", soon)]


async def test_what_was_accepted_is_a_fact_and_decides_how_a_window_lapsed(
    lab: Lab, replica: Replica, story: Story, post: Post, nats_url: str
) -> None:
    """N4: it follows what was really delivered, not what was due; the review tells the same as the record."""
    await policy(story, escalateAfterSeconds=1)
    async with subscribed(nats_url, f"takeback.{story.campaign}.window.>") as heard:
        entry = await story.call(seconds=2)
        await post.deliver("window.reminder")
        [reminded] = await eventually(lambda: records(story, "window.reminded"))
        assert (reminded["entry"], reminded["recipient"], reminded["by"]["kind"]) == (entry, "paladin", "system")
        await eventually(lambda: post.told("window.escalation"))  # due, and never accepted
        record = await lapsed(story, entry)
        assert (record["how"], record["acknowledgedBy"]) == ("after_reminder", None)
        await eventually(lambda: len(heard) == 2)
    assert [event["type"].rsplit(".", 1)[-1] for event in heard] == ["reminded", "lapsed"]
    assert await closed_in_review(lab, replica, story, entry) == ("after_reminder", None)


async def test_a_window_lapses_after_an_escalation_that_reached_somebody(
    lab: Lab, replica: Replica, story: Story, post: Post
) -> None:
    """N4: an escalation that was accepted outranks the reminder that nobody received."""
    await policy(story, escalateAfterSeconds=1)
    entry = await story.call(seconds=2)
    await post.deliver("window.escalation")
    [escalated] = await eventually(lambda: records(story, "window.escalated"))
    assert (escalated["entry"], escalated["recipient"]) == (entry, "cleric")
    assert (await lapsed(story, entry))["how"] == "after_escalation"
    assert await closed_in_review(lab, replica, story, entry) == ("after_escalation", None)


async def test_what_nobody_received_in_time_lapses_quietly(
    lab: Lab, replica: Replica, story: Story, post: Post
) -> None:
    """N4: a reminder that is accepted after the window closed told nobody anything in time."""
    await policy(story)
    entry = await story.call(seconds=1)
    await post.deliver("window.reminder", datetime.now(UTC) + timedelta(seconds=30))
    assert (await lapsed(story, entry))["how"] == "quietly"
    assert await closed_in_review(lab, replica, story, entry) == ("quietly", None)
    assert await records(story, "window.reminded")


async def test_an_acknowledged_window_is_quiet_and_says_by_whom_when_it_lapses(
    lab: Lab, replica: Replica, story: Story, post: Post
) -> None:
    """N3, N4: by entry; the other one is still reminded of, and one that is undone is not."""
    await policy(story, leadSeconds=1)
    seen, other, undone = [await story.call(seconds=2) for _ in range(3)]
    await story.revert(undone)
    answer = await replica.http.post(
        f"/v1/runs/{story.run}/review/acknowledgement", headers=lab.token("paladin"), json={"entries": [seen]}
    )
    assert answer.status_code == 201
    record = await lapsed(story, seen)
    assert (record["how"], record["acknowledgedBy"]) == ("after_acknowledgement", "paladin")
    await lapsed(story, other)
    assert await post.told("window.reminder") == [("paladin", other)]
    assert await closed_in_review(lab, replica, story, seen) == ("after_acknowledgement", "paladin")
    assert {data["entry"] for data in await records(story, "window.lapsed")} == {seen, other}


async def test_whoever_decides_a_plan_has_seen_its_entries(
    lab: Lab, replica: Replica, story: Story, post: Post
) -> None:
    """N3, N4: a window whose plan was decided goes quiet, and lapses with the name of who decided."""
    await policy(story, leadSeconds=1)
    entry = await story.call(seconds=2)
    plan = {"id": new_id("pln"), "campaign": story.campaign, "digest": "d", "status": "proposed",
            "asOf": datetime.now(UTC).isoformat(), "targets": [entry]}  # fmt: skip
    await story.tell("plan.proposed", {"plan": plan, "by": GM})
    decided = {"plan": plan["id"], "campaign": story.campaign, "digest": "d", "decision": "reject", "by": GM}
    await story.tell("plan.decided", decided)
    record = await lapsed(story, entry)
    assert (record["how"], record["acknowledgedBy"]) == ("after_acknowledgement", "gm")
    assert await post.told("window.reminder") == []
    assert await closed_in_review(lab, replica, story, entry) == ("after_acknowledgement", "gm")


async def test_a_window_that_can_still_close_is_reminded_of_once_however_long_ago_that_was(
    pool: asyncpg.Pool, story: Story, post: Post
) -> None:
    """N3: messages are trimmed by age, but not those that an open window asks for."""
    await policy(story)
    entry = await story.call(seconds=1800)
    await eventually(lambda: post.told("window.reminder"))
    await pool.execute(
        "update outgoing set created_at = created_at - $1::interval where campaign = $2", 2 * KEPT, story.campaign
    )
    await pool.execute("delete from deliveries where campaign = $1", story.campaign)
    await outgoing.Messages(pool).trim()
    await pool.execute("update windows set look_at = 'epoch' where entry = $1", entry)
    await eventually(lambda: pool.fetchval("select look_at > 'epoch' from windows where entry = $1", entry))
    assert await post.told("window.reminder") == [("paladin", entry)]


async def test_a_notifier_that_was_away_tells_what_is_past_as_past_once(
    lab: Lab, replica: Replica, story: Story, post: Post
) -> None:
    """N3: no flood: one message of all windows that nobody heard of in time, and a record of each."""
    await policy(story)
    entries = [await story.call(seconds=-86400 + number, publish=False) for number in range(30)]
    await replica.http.get(f"/v1/runs/{story.run}/review", headers=lab.token("paladin"))
    for entry in entries:
        assert (await lapsed(story, entry))["how"] == "quietly"
    async with lab.notifier(reminder_poll_seconds="0.05") as other:
        await other.notifier.handlers.inbox.read_again(story.run)
        await other.http.get(f"/v1/runs/{story.run}/review", headers=lab.token("paladin"))
        soon = await story.call(seconds=1800)
        await eventually(lambda: post.told("window.reminder"))
    assert await post.told("window.reminder") == [("paladin", soon)]
    assert sorted(await post.told("window.passed")) == sorted(("paladin", entry) for entry in entries)
    assert len(await post.messages("window.passed")) <= 3
    assert len(await records(story, "window.lapsed")) == 30


async def test_a_rebuild_sends_nothing_again(
    lab: Lab, replica: Replica, story: Story, post: Post, pool: asyncpg.Pool
) -> None:
    """N3: the ledger of messages is the notifier's own truth; the windows are found again as they were."""
    await policy(story)
    _, gone = await story.call(seconds=1800), await story.call(seconds=1)
    await post.deliver("window.reminder")
    await lapsed(story, gone)
    await eventually(lambda: records(story, "window.reminded"))
    await replica.http.get(f"/v1/runs/{story.run}/review", headers=lab.token("paladin"))
    before = await post.messages()
    inbox = replica.notifier.handlers.inbox
    for stream in (story.run, story.campaign, story.run):
        await inbox.read_again(stream)
    await story.call(seconds=7200)
    await eventually(lambda: _looked(pool, story.campaign))
    assert [message["id"] for message in await post.messages()] == [message["id"] for message in before]
    assert len(await records(story, "window.lapsed")) == 1


async def _looked(pool: asyncpg.Pool, campaign: str) -> bool:
    return not await pool.fetchval(
        "select exists (select from windows where campaign = $1 and state = 'open' and remind_at is null)", campaign
    )


async def test_a_window_is_not_said_to_have_lapsed_while_it_is_being_taken_back(
    replica: Replica, story: Story, journal: StandInJournal
) -> None:
    """N4, G11: a reversal that the recorder has begun is waited for."""
    entry = await story.call(seconds=1)
    journal.unsettled = [story.entries[entry] | {"status": "reverting"}]
    other = await story.call(seconds=1)
    await lapsed(story, other)
    await story.revert(entry)
    journal.unsettled = []
    async with asyncio.timeout(10):
        await replica.notifier.handlers.inbox.catch_up(story.campaign)
    assert [data["entry"] for data in await records(story, "window.lapsed")] == [other]


async def test_a_reminder_that_would_come_off_duty_comes_before_the_end_of_duty(
    replica: Replica, story: Story, pool: asyncpg.Pool
) -> None:
    """N3: a calendar of the role moves it, and it never moves later."""
    await policy(story)
    now = datetime.now(UTC)
    ends = now + timedelta(hours=2)
    weekly = {now.strftime("%a").lower(): [[now.strftime("%H:%M"), ends.strftime("%H:%M")]]}
    calendar = {"zone": "UTC", "weekly": weekly, "holidays": None, "absences": None}
    entry = await story.call(seconds=86400)
    await story.tell("calendar.changed", {"campaign": story.campaign, "sub": "member", "calendar": calendar, "by": GM})
    row = await eventually(
        lambda: pool.fetchrow(
            "select * from windows where entry = $1 and remind_at < undo_by - interval '20 hours'", entry
        )
    )
    assert ends - timedelta(minutes=31) <= row["remind_at"] <= ends - timedelta(minutes=29)


async def test_a_changed_role_tells_those_whose_runs_can_still_be_taken_back(
    replica: Replica, story: Story, post: Post, nats_url: str
) -> None:
    """N9: with who may do it now; nobody is told of a change that concerns none of their windows."""
    entry = await story.call(seconds=7200)
    await story.call(seconds=None)
    async with subscribed(nats_url, f"takeback.{story.campaign}.review.authority_changed") as heard:
        await story.member("rogue", None)
        await story.member("cleric", "member")
        [message] = await eventually(lambda: post.messages("role.changed"))
        await eventually(lambda: heard)
        await story.member("cleric", "member")
    assert (message["recipient"], message["payload"]["sub"], message["payload"]["was"]) == (
        "paladin",
        "cleric",
        "approver",
    )
    [run] = message["payload"]["runs"]
    assert (run["run"], run["open"], run["by"]) == (story.run, 1, ["gm", "paladin"])
    assert run["nextDeadline"] == story.entries[entry]["undo"]["undoBy"].replace("+00:00", "Z")
    assert [event["data"]["role"] for event in heard] == ["member"]


async def test_when_the_principal_has_left_the_owners_hear_of_the_window(
    replica: Replica, story: Story, post: Post
) -> None:
    """N3, N9."""
    await policy(story)
    await story.member("paladin", None)
    entry = await story.call(seconds=1800)
    await eventually(lambda: post.told("window.reminder"))
    assert await post.told("window.reminder") == [("gm", entry)]


async def test_the_speed_of_reviews_is_measured_and_suggests_a_shortest_window(
    lab: Lab, replica: Replica, story: Story
) -> None:
    """N8: from close to review, per campaign and person, with the share of windows that it would have caught."""
    short, long = await story.call(seconds=2), await story.call(seconds=86400)
    await story.close()
    path, headers = f"/v1/campaigns/{story.campaign}/questions/reviews", lab.token("rogue")
    answer = (await replica.http.get(path, headers=headers)).json()
    assert (answer["closedRuns"], answer["reviewedRuns"], answer["all"]["suggestion"]) == (1, 0, None)
    await lapsed(story, short)
    acknowledged = await replica.http.post(
        f"/v1/runs/{story.run}/review/acknowledgement", headers=lab.token("cleric"), json={"entries": [long]}
    )
    assert acknowledged.status_code == 201
    answer = (await replica.http.get(path, headers=headers)).json()
    assert (answer["closedRuns"], answer["reviewedRuns"]) == (1, 1)
    [person] = answer["people"]
    assert (person["sub"], person["reviews"]) == ("cleric", 1)
    suggestion = answer["all"]["suggestion"]
    assert suggestion["minWindowSeconds"] >= 3
    assert (suggestion["windows"], suggestion["caught"], suggestion["share"]) == (2, 1, 0.5)
    assert (suggestion["missed"], suggestion["missedCaught"]) == (1, 1)
    assert (await replica.http.get(path, headers=lab.token("stranger"))).status_code == 404


async def test_absences_that_cannot_be_read_are_told_and_stop_nothing(
    replica: Replica, story: Story, post: Post
) -> None:
    """P3: the calendar goes on without them; an address of this machine is never asked."""
    await policy(story)
    weekly = {day: [["00:00", "24:00"]] for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")}
    calendar = {"zone": "UTC", "weekly": weekly, "absences": "http://127.0.0.1:9/calendar.ics"}
    await story.tell("calendar.changed", {"campaign": story.campaign, "sub": "paladin", "calendar": calendar, "by": GM})
    [message] = await eventually(lambda: post.messages("calendar.unreadable"))
    assert message["recipient"] == "paladin"
    assert "no public address" in message["payload"]["problem"]
    entry = await story.call(seconds=1800)
    await eventually(lambda: post.told("window.reminder"))
    assert await post.told("window.reminder") == [("paladin", entry)]


async def test_a_recorder_that_is_away_delays_no_reminder(
    replica: Replica, story: Story, post: Post, journal: StandInJournal
) -> None:
    """N3: what is to be recorded waits, what is to be told does not."""
    await policy(story)
    first = await story.call(seconds=1800)
    await eventually(lambda: post.told("window.reminder"))
    second = await story.call(seconds=1700)
    await journal.stop()
    await post.deliver("window.reminder")
    await eventually(lambda: _both(post, first, second))
    await journal.start()
    await eventually(lambda: records(story, "window.reminded"))


async def _both(post: Post, *entries: str) -> bool:
    return {entry for _, entry in await post.told("window.reminder")} == set(entries)
