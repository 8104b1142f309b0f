"""Questions of the journal, and the queue of reviews: counted from the projection, for members (U2, U3)."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from notifier import queue
from takeback.ids import new_id
from tests.integration.notifier_lab import Lab, Replica, StandInJournal, Story
from tests.servers import NatsServer


@pytest.fixture
async def story(nats_server: NatsServer) -> AsyncIterator[Story]:
    async with StandInJournal.running(nats_server.url) as journal:
        story = Story(journal)
        await story.begin()
        yield story


@pytest.fixture
async def replica(postgres_url: str, nats_url: str, tmp_path: Path, story: Story) -> AsyncIterator["Asked"]:
    lab = Lab(postgres_url, nats_url, tmp_path)
    async with lab.notifier() as replica:
        yield Asked(lab, replica, story.campaign)


class Asked:
    """Asks as `paladin`."""

    def __init__(self, lab: Lab, replica: Replica, campaign: str) -> None:
        self.lab = lab
        self.replica = replica
        self.campaign = campaign

    async def __call__(self, path: str, sub: str = "paladin") -> Any:
        answer = await self.replica.http.get(f"/v1/campaigns/{self.campaign}/{path}", headers=self.lab.token(sub))
        assert answer.status_code == 200, answer.text
        return answer.json()


async def take_back(story: Story, entry: str, category: str | None) -> None:
    """A verified reversal with its record."""
    await story.revert(entry)
    now = datetime.now(UTC).isoformat()
    receipt = {"entry": entry, "outcome": "reverted", "approvedBy": "paladin", "authority": "principal", "at": now}
    plan = new_id("pln")
    record = {
        "id": new_id("rvl"), "plan": plan, "digest": "d", "campaign": story.campaign, "approvedBy": "paladin",
        "authority": "principal", "reason": "why", "category": category, "receipts": [receipt], "at": now,
    }  # fmt: skip
    await story.tell("reversal.completed", {"plan": plan, "campaign": story.campaign, "record": record})


async def test_calls_are_counted_by_operation_and_model_version(story: Story, replica: Asked) -> None:
    """U3: how often is a tool called per model version."""
    for model, times in (("m-1", 3), ("m-2", 2)):
        for _ in range(times):
            await story.call(model=model)
    await story.call(model="m-2", status="failed")
    await story.call(operation="look", kind="read")
    calls = await replica("questions/calls")
    assert calls["total"] == 7
    counted = {
        (one["operation"], one["model"]): (one["calls"], one["committed"], one["failed"]) for one in calls["items"]
    }
    assert counted == {
        ("damage_creature", "m-1"): (3, 3, 0),
        ("damage_creature", "m-2"): (3, 2, 1),
        ("look", "m-1"): (1, 1, 0),
    }


async def test_the_share_taken_back_is_told_with_its_reasons_and_what_never_was(story: Story, replica: Asked) -> None:
    """U3: what share is taken back and why, by model version and operation; which operations have never been undone."""
    entries = [await story.call(model=model) for model in ("m-1", "m-1", "m-1", "m-2")]
    await story.call(operation="send_mail", undo={"kind": "none"})
    await story.call(operation="look", kind="read")
    await take_back(story, entries[0], "misread")
    await take_back(story, entries[3], None)
    told = await replica("questions/reversals")
    assert (told["happened"], told["reverted"], told["share"]) == (5, 2, 0.4)
    assert told["why"] == {"misread": 1, "unsaid": 1}
    by_model = {one["model"]: (one["happened"], one["reverted"], one["why"]) for one in told["byModel"]}
    assert by_model == {"m-1": (4, 1, {"misread": 1}), "m-2": (1, 1, {"unsaid": 1})}
    assert [(one["operation"], one["calls"], one["undo"]) for one in told["neverUndone"]] == [("send_mail", 1, "none")]


async def test_what_was_made_good_again_counts_as_undone_once_and_as_standing_now(story: Story, replica: Asked) -> None:
    """U3, S12: a share is about now, "never undone" is about ever."""
    entry = await story.call()
    await take_back(story, entry, "other")
    await story.restore(entry)
    told = await replica("questions/reversals")
    assert (told["happened"], told["reverted"], told["neverUndone"]) == (1, 0, [])


async def test_the_queue_begins_with_the_window_that_closes_first(story: Story, replica: Asked) -> None:
    """U2, N2: a countdown; what is closed, reverted or irreversible is not in it."""
    await story.call(seconds=7200)
    other = await another_run(story)
    first = await other.call(seconds=600)
    await other.call(seconds=None)
    await other.call(seconds=-5)
    await other.call(seconds=60, undo={"kind": "none"})
    await other.revert(await other.call(seconds=30))
    queued = (await replica("reviews"))["items"]
    assert [one["run"] for one in queued] == [other.run, story.run]
    assert (queued[0]["open"], queued[0]["next"]["entry"], queued[0]["acknowledged"]) == (2, first, 0)


async def another_run(story: Story, principal: str = "paladin") -> Story:
    """One more run of the campaign."""
    other = Story(story.journal, campaign=story.campaign)
    run = {"campaign": story.campaign, "run": other.run, "agent": "ranger", "model": "m-1", "principal": principal}
    await story.journal.append(other.run, story.campaign, "run.opened", {**run, "by": {"sub": "gm", "kind": "human"}})
    return other


async def test_every_run_with_an_open_window_is_reached_page_by_page_and_none_twice(
    story: Story, replica: Asked
) -> None:
    """U2, N2: more runs than a page holds, more windows in one than in all others, and some without any deadline."""
    for _ in range(120):
        await story.call(seconds=600)
    expected = [story.run]
    for number in range(queue.PAGE):
        other = await another_run(story)
        await other.call(seconds=700 + number)
        expected.append(other.run)
    dateless = [await another_run(story), await another_run(story)]
    for other in dateless:
        await other.call(seconds=None)
    broken = await another_run(story)
    await broken.call(seconds=60, unresolved=[{"field": "undo.kind", "reason": "no such kind"}])
    first = await replica("reviews")
    second = await replica(f"reviews?cursor={quote(first['next'])}")
    assert (len(first["items"]), "next" in second) == (queue.PAGE, False)
    assert first["items"][0]["open"] == 120
    runs = [one["run"] for one in (*first["items"], *second["items"])]
    assert runs == expected + sorted(other.run for other in dateless)


async def test_the_queue_of_some_runs_alone_leaves_out_the_others(story: Story, replica: Asked) -> None:
    """U2: what a page of runs needs, wherever they stand in the queue."""
    await story.call(seconds=60)
    other = await another_run(story)
    await other.call(seconds=600)
    found = (await replica(f"reviews?run={other.run}&run={new_id('run')}"))["items"]
    assert [one["run"] for one in found] == [other.run]


async def test_the_queue_counts_as_seen_what_the_review_does(story: Story, replica: Asked) -> None:
    """G11: a decided plan is as good as an acknowledgement, in both."""
    entry = await story.call(seconds=600)
    plan, by = new_id("pln"), {"sub": "paladin", "kind": "human", "authority": "principal"}
    proposed = {
        "id": plan,
        "campaign": story.campaign,
        "digest": "d",
        "status": "proposed",
        "asOf": datetime.now(UTC).isoformat(),
        "targets": [entry],
    }
    await story.tell("plan.proposed", {"campaign": story.campaign, "plan": proposed, "by": by})
    decided = {"plan": plan, "campaign": story.campaign, "decision": "reject", "digest": "d", "reason": "", "by": by}
    await story.tell("plan.decided", decided)
    (queued,) = (await replica("reviews"))["items"]
    review = (
        await replica.replica.http.get(f"/v1/runs/{story.run}/review", headers=replica.lab.token("paladin"))
    ).json()
    assert (queued["acknowledged"], queued["next"]["acknowledged"], review["open"][0]["acknowledged"]) == (
        1,
        True,
        True,
    )


@pytest.mark.parametrize(
    "cursor", ["x", "never~", "~run_1", "2026-11-30~run_1", "2026-13-30T00:00:00Z~run_1", "never~a b"]
)
async def test_a_cursor_that_no_listing_gave_is_refused(story: Story, replica: Asked, cursor: str) -> None:
    """U2."""
    answer = await replica.replica.http.get(
        f"/v1/campaigns/{story.campaign}/reviews", params={"cursor": cursor}, headers=replica.lab.token("paladin")
    )
    assert answer.status_code == 422


async def test_a_window_says_who_is_on_duty_before_it_closes_to_people_alone(story: Story, replica: Asked) -> None:
    """P3, N3, U2: the principal is off until after it closes, the owner is there; agents are told nothing of that."""
    by = {"sub": "gm", "kind": "human", "authority": "owner"}
    always = {day: [["00:00", "24:00"]] for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")}
    today = datetime.now(UTC)
    back = (today + timedelta(days=2)).date()
    away = {**always, (today - timedelta(days=1)).strftime("%a").lower(): []} | {
        (today + timedelta(days=days)).strftime("%a").lower(): [] for days in (0, 1)
    }
    for sub, weekly in (("paladin", away), ("gm", always)):
        calendar = {"zone": "UTC", "weekly": weekly}
        await story.tell("calendar.changed", {"campaign": story.campaign, "sub": sub, "calendar": calendar, "by": by})
    entry = await story.call(seconds=600)
    (window,) = (await replica(f"windows?entry={entry}&entry={new_id('ent')}"))["items"]
    principal, owner = window["duty"]
    assert (principal["sub"], principal["told"], principal["onDutyFrom"]) == ("paladin", "reminder", None)
    assert datetime.fromisoformat(principal["backAt"]).date() == back
    assert (owner["sub"], owner["told"], owner["onDutyUntil"]) == ("gm", "escalation", window["undoBy"])
    (queued,) = (await replica("reviews"))["items"]
    assert queued["next"]["duty"][0] == principal
    review = (
        await replica.replica.http.get(f"/v1/runs/{story.run}/review", headers=replica.lab.token("paladin"))
    ).json()
    assert review["open"][0]["duty"][0] == principal
    for path in (f"windows?entry={entry}", "reviews"):
        answer = await replica.replica.http.get(
            f"/v1/campaigns/{story.campaign}/{path}", headers=replica.lab.token("ranger", "agent")
        )
        (told,) = answer.json()["items"]
        assert told.get("next", told)["duty"] == []


@pytest.mark.parametrize("path", ["questions/calls", "questions/reversals", "reviews", "windows"])
async def test_a_stranger_is_told_nothing(story: Story, replica: Asked, path: str) -> None:
    """G7: the one 404."""
    answer = await replica.replica.http.get(
        f"/v1/campaigns/{story.campaign}/{path}", headers=replica.lab.token("stranger")
    )
    assert answer.status_code == 404
