"""How windows lapse, by what was accepted in time and who had seen them (N4), and how fast reviews happen (N8)."""

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from takeback.ids import new_id
from tests.integration.notifier_lab import Lab, Replica, StandInJournal, Story, subscribed
from tests.integration.windows.conftest import GM, Post, closed_in_review, lapsed, looked, policy, records
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_what_was_accepted_is_a_fact_and_decides_how_a_window_lapsed(
    lab: Lab, replica: Replica, story: Story, post: Post, nats_url: str
) -> None:
    """N4: it follows what was really delivered, not what was due; the review tells the same as the record."""
    await policy(story, escalateAfterSeconds=1)
    async with subscribed(nats_url, f"takeback.{story.campaign}.window.>") as heard:
        entry = await story.call()
        await post.deliver("window.reminder")
        [reminded] = await eventually(lambda: records(story, "window.reminded"))
        assert (reminded["entry"], reminded["recipient"], reminded["by"]["kind"]) == (entry, "paladin", "system")
        await eventually(lambda: post.told("window.escalation"))  # due, and never accepted
        await story.ends(entry)
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
    entry = await story.call()
    await post.deliver("window.escalation")
    [escalated] = await eventually(lambda: records(story, "window.escalated"))
    assert (escalated["entry"], escalated["recipient"]) == (entry, "cleric")
    await story.ends(entry)
    assert (await lapsed(story, entry))["how"] == "after_escalation"
    assert await closed_in_review(lab, replica, story, entry) == ("after_escalation", None)


async def test_what_nobody_received_in_time_lapses_quietly(
    lab: Lab, replica: Replica, story: Story, post: Post
) -> None:
    """N4: a reminder that is accepted after the window closed told nobody anything in time."""
    await policy(story)
    entry = await story.call()
    await post.deliver("window.reminder", datetime.now(UTC) + timedelta(seconds=30))
    await story.ends(entry)
    assert (await lapsed(story, entry))["how"] == "quietly"
    assert await closed_in_review(lab, replica, story, entry) == ("quietly", None)
    await eventually(lambda: records(story, "window.reminded"))


async def test_an_acknowledged_window_is_quiet_and_says_by_whom_when_it_lapses(
    lab: Lab, replica: Replica, story: Story, post: Post, pool: asyncpg.Pool
) -> None:
    """N3, N4: by entry; the other one is still reminded of, and one that is undone is not."""
    await policy(story, leadSeconds=1800)
    seen, other, undone = [await story.call(seconds=3600) for _ in range(3)]
    await story.revert(undone)
    answer = await replica.http.post(
        f"/v1/runs/{story.run}/review/acknowledgement", headers=lab.token("paladin"), json={"entries": [seen]}
    )
    assert answer.status_code == 201
    await story.ends(seen, other, seconds=900)
    await looked(pool, seen, other, within=900)
    await story.ends(seen, other)
    record = await lapsed(story, seen)
    assert (record["how"], record["acknowledgedBy"]) == ("after_acknowledgement", "paladin")
    await lapsed(story, other)
    assert await post.told("window.reminder") == [("paladin", other)]
    assert await closed_in_review(lab, replica, story, seen) == ("after_acknowledgement", "paladin")
    assert {data["entry"] for data in await records(story, "window.lapsed")} == {seen, other}


async def test_whoever_decides_a_plan_has_seen_its_entries(
    lab: Lab, replica: Replica, story: Story, post: Post, pool: asyncpg.Pool
) -> None:
    """N3, N4: a window whose plan was decided goes quiet, and lapses with the name of who decided."""
    await policy(story, leadSeconds=1800)
    entry = await story.call(seconds=3600)
    plan = {"id": new_id("pln"), "campaign": story.campaign, "digest": "d", "status": "proposed",
            "asOf": datetime.now(UTC).isoformat(), "targets": [entry]}  # fmt: skip
    await story.tell("plan.proposed", {"plan": plan, "by": GM})
    decided = {"plan": plan["id"], "campaign": story.campaign, "digest": "d", "decision": "reject", "by": GM}
    await story.tell("plan.decided", decided)
    await story.ends(entry, seconds=900)
    await looked(pool, entry, within=900)
    await story.ends(entry)
    record = await lapsed(story, entry)
    assert (record["how"], record["acknowledgedBy"]) == ("after_acknowledgement", "gm")
    assert await post.told("window.reminder") == []
    assert await closed_in_review(lab, replica, story, entry) == ("after_acknowledgement", "gm")


async def test_a_window_is_not_said_to_have_lapsed_while_it_is_being_taken_back(
    replica: Replica, story: Story, journal: StandInJournal
) -> None:
    """N4, G11: a reversal that the recorder has begun is waited for."""
    entry, other = await story.call(), await story.call()
    journal.unsettled = [story.entries[entry] | {"status": "reverting"}]
    await story.ends(entry, other)
    await lapsed(story, other)
    await story.revert(entry)
    journal.unsettled = []
    async with asyncio.timeout(10):
        await replica.notifier.handlers.inbox.catch_up(story.campaign)
    assert [data["entry"] for data in await records(story, "window.lapsed")] == [other]


async def test_the_speed_of_reviews_is_measured_and_suggests_a_shortest_window(
    lab: Lab, replica: Replica, story: Story
) -> None:
    """N8: from close to review, per campaign and person, with the share of windows that it would have caught."""
    short, long = await story.call(seconds=2), await story.call(seconds=86400)
    story.journal.age = timedelta(seconds=10)
    await story.close()
    story.journal.age = timedelta()
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
