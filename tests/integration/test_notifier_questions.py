"""Questions of the journal, and the queue of reviews: counted from the projection, for members (U2, U3)."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

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
    other = Story(story.journal, campaign=story.campaign)
    run = {"campaign": story.campaign, "run": other.run, "agent": "ranger", "model": "m-1", "principal": "paladin"}
    await story.journal.append(other.run, story.campaign, "run.opened", {**run, "by": {"sub": "gm", "kind": "human"}})
    first = await other.call(seconds=600)
    await other.call(seconds=None)
    await other.call(seconds=-5)
    await other.call(seconds=60, undo={"kind": "none"})
    await other.revert(await other.call(seconds=30))
    queue = (await replica("reviews"))["items"]
    assert [one["run"] for one in queue] == [other.run, story.run]
    assert (queue[0]["open"], queue[0]["next"]["entry"], queue[0]["acknowledged"]) == (2, first, 0)


@pytest.mark.parametrize("path", ["questions/calls", "questions/reversals", "reviews"])
async def test_a_stranger_is_told_nothing(story: Story, replica: Asked, path: str) -> None:
    """G7: the one 404."""
    answer = await replica.replica.http.get(
        f"/v1/campaigns/{story.campaign}/{path}", headers=replica.lab.token("stranger")
    )
    assert answer.status_code == 404
