"""Reminders and escalations: each told once, to whoever is there, and what is past is told as past (N3, N9)."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from notifier import outgoing
from notifier.remembering import KEPT
from tests.integration.notifier_lab import Lab, Replica, StandInJournal, Story, subscribed
from tests.integration.windows.conftest import GM, Post, lapsed, policy, records
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
