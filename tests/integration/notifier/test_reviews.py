"""When a run closes its principal gets a review, computed when it is read, and acknowledges it (N1, N2, N4)."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import httpx
import pytest

from notifier import tables
from takeback import json
from takeback.ids import new_id
from tests.integration.notifier_lab import (
    Lab,
    Replica,
    Story,
    entry_view,
    eventually,
    subscribed,
)
from tests.servers import NatsServer


@pytest.fixture
async def replica(lab: Lab, story: Story) -> AsyncIterator[Replica]:
    async with lab.notifier() as replica:
        yield replica


async def read(replica: Replica, run: str, headers: dict[str, str]) -> httpx.Response:
    return await replica.http.get(f"/v1/runs/{run}/review", headers=headers)


async def acknowledge(replica: Replica, run: str, headers: dict[str, str], body: object = None) -> httpx.Response:
    return await replica.http.post(f"/v1/runs/{run}/review/acknowledgement", headers=headers, json=body or {})


async def test_a_review_says_what_can_be_taken_back_until_when_and_what_cannot(
    lab: Lab, replica: Replica, story: Story
) -> None:
    """N1, N2: sorted by the earliest deadline, closed entries marked closed."""
    late, soon, never_ends = [await story.call(seconds=seconds) for seconds in (7200, 60, None)]
    closed = await story.call(seconds=-1)
    declared = await story.call(undo={"kind": "none", "why": "An e-mail is gone."})
    unknown = await story.call(undo={"kind": "unknown"})
    broken = await story.call(unresolved=[{"field": "undo.kind", "reason": "not a kind: 'magic'"}])
    failed = await story.call(status="failed")
    reverted = await story.call()
    await story.revert(reverted)
    await story.call(kind="read")
    ends = datetime.fromisoformat(story.entries[soon]["undo"]["undoBy"])
    most = (ends - datetime.now(UTC)).total_seconds()
    review = (await read(replica, story.run, lab.token("paladin"))).json()
    least = (ends - datetime.now(UTC)).total_seconds()
    assert [item["entry"] for item in review["open"]] == [soon, late, never_ends]
    assert least - 1 < review["open"][0]["secondsLeft"] <= most
    assert review["open"][2]["secondsLeft"] is None
    assert [(item["entry"], item["lapsed"]) for item in review["closed"]] == [(closed, "quietly")]
    assert [(item["entry"], item["reason"]) for item in review["notReversible"]] == [
        (declared, "declared"), (unknown, "unknown"), (failed, "failed"),
    ]  # fmt: skip
    assert [item["entry"] for item in review["unresolved"]] == [broken]
    assert [(item["entry"], item["revertedByPerson"]) for item in review["reverted"]] == [(reverted, "paladin")]
    assert (review["principal"], review["status"]) == ("paladin", "open")


async def test_a_review_is_computed_on_everything_acknowledged_before_it_was_asked_for(
    lab: Lab, replica: Replica, story: Story
) -> None:
    """Read your own writes: whatever the bus has not delivered is fetched, the run's opening included."""
    other = Story(story.journal, story.campaign)
    by = {"sub": "gm", "kind": "human"}
    opened = {"campaign": story.campaign, "run": other.run, "agent": "ranger", "model": "m", "principal": "rogue"}
    await story.journal.append(other.run, story.campaign, "run.opened", {**opened, "by": by}, publish=False)
    entry = await other.call(publish=False)
    await story.member("newcomer", "member", publish=False)
    review = await read(replica, other.run, lab.token("newcomer"))
    assert [item["entry"] for item in review.json()["open"]] == [entry]
    await other.revert(entry, publish=False)
    assert (await read(replica, other.run, lab.token("rogue"))).json()["open"] == []


async def test_what_the_recorder_has_begun_and_not_concluded_is_unresolved(
    lab: Lab, replica: Replica, story: Story
) -> None:
    """G11: a plan made now says the same."""
    entry = await story.call()
    pending = entry_view(new_id("ent"), "e2", story.run, story.campaign, None) | {"status": "pending"}
    elsewhere = entry_view(new_id("ent"), "e1", "run_other", story.campaign, None) | {"status": "pending"}
    story.journal.unsettled = [story.entries[entry] | {"status": "reverting"}, pending, elsewhere]
    review = (await read(replica, story.run, lab.token("paladin"))).json()
    assert [item["entry"] for item in review["unresolved"]] == [entry, pending["id"]]
    assert review["open"] == []


async def test_without_the_journal_a_review_is_refused_and_not_answered_on_old_facts(
    lab: Lab, replica: Replica, story: Story
) -> None:
    """503, safe to try again."""
    await read(replica, story.run, lab.token("paladin"))
    await story.journal.stop()
    answer = await read(replica, story.run, lab.token("paladin"))
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_review_is_hidden_from_strangers_as_if_it_did_not_exist(
    lab: Lab, replica: Replica, story: Story
) -> None:
    """G7: the same bytes."""
    answers = [
        await read(replica, story.run, lab.token("stranger")),
        await read(replica, "run_none", lab.token("paladin")),
        await read(replica, story.campaign, lab.token("paladin")),
        await read(replica, "no%20id", lab.token("paladin")),
        await acknowledge(replica, story.run, lab.token("stranger")),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert (await read(replica, story.run, {})).status_code == 401


@pytest.mark.parametrize(("sub", "authority"), [("paladin", "principal"), ("gm", "owner"), ("cleric", "approver")])
async def test_a_person_with_authority_acknowledges_and_the_journal_holds_it(
    lab: Lab, replica: Replica, story: Story, sub: str, authority: str
) -> None:
    """N4: answered only when it is recorded; who and in what capacity."""
    entries = [await story.call(), await story.call()]
    answer = await acknowledge(replica, story.run, lab.token(sub))
    record = story.journal.streams[story.campaign][-1]
    assert answer.status_code == 201
    assert record["type"].endswith("review.acknowledged")
    assert record["data"]["entries"] == entries
    assert record["data"]["by"] == {"sub": sub, "kind": "human", "authority": authority}
    assert answer.json() | {"at": 0} == {"by": sub, "authority": authority, "at": 0, "entries": entries}
    review = (await read(replica, story.run, lab.token("rogue"))).json()
    assert review["acknowledged"] == [answer.json()]
    assert [item["acknowledged"] for item in review["open"]] == [True, True]


async def test_a_read_is_in_no_review_and_still_an_entry_of_the_run(lab: Lab, replica: Replica, story: Story) -> None:
    """N2, N4: acknowledging one says nothing of anybody else's entries."""
    read_only = await story.call(kind="read", operation="look")
    foreign = await acknowledge(replica, story.run, lab.token("paladin"), {"entries": [read_only, "ent_other"]})
    answer = await acknowledge(replica, story.run, lab.token("paladin"), {"entries": [read_only]})
    assert (foreign.status_code, answer.status_code, answer.json()["entries"]) == (422, 201, [read_only])
    assert read_only not in foreign.json()["detail"]
    review = (await read(replica, story.run, lab.token("paladin"))).json()
    listed = ("open", "closed", "notReversible", "unresolved", "reverted")
    assert [review[section] for section in listed] == [[], [], [], [], []]


async def test_only_a_person_with_authority_acknowledges(lab: Lab, replica: Replica, story: Story) -> None:
    """N4, G7: an agent never, another member is refused and the security log says so; reading acknowledges nothing."""
    entry = await story.call()
    agent = await acknowledge(replica, story.run, lab.token("ranger", "agent"))
    rogue = await acknowledge(replica, story.run, lab.token("rogue"))
    foreign = await acknowledge(replica, story.run, lab.token("paladin"), {"entries": [entry, "ent_other"]})
    empty = await acknowledge(replica, story.run, lab.token("paladin"), {"entries": []})
    assert [answer.status_code for answer in (agent, rogue, foreign, empty)] == [403, 403, 422, 422]
    assert [problem.json()["type"].rsplit("/", 1)[1] for problem in (agent, rogue)] == [
        "human-required", "not-authorised",
    ]  # fmt: skip
    assert "ent_other" in foreign.json()["detail"]
    assert [(log["by"]["sub"], log["campaign"]) for log in story.journal.refused] == [("rogue", story.campaign)]
    assert not any(event["type"].endswith("acknowledged") for event in story.journal.streams[story.campaign])
    assert (await read(replica, story.run, lab.token("paladin"))).json()["acknowledged"] == []


async def test_a_window_that_closes_after_somebody_acknowledged_it_says_so(
    lab: Lab, replica: Replica, story: Story
) -> None:
    """N4."""
    acknowledged, other = await story.call(), await story.call()
    answer = await acknowledge(replica, story.run, lab.token("paladin"), {"entries": [acknowledged]})
    await story.ends(acknowledged, other)
    closed = (await read(replica, story.run, lab.token("paladin"))).json()["closed"]
    assert answer.status_code == 201
    assert {item["entry"]: (item["lapsed"], item["acknowledgedBy"]) for item in closed} == {
        acknowledged: ("after_acknowledgement", "paladin"),
        other: ("quietly", None),
    }


async def test_the_same_acknowledgement_again_is_one_record(lab: Lab, replica: Replica, story: Story) -> None:
    """The contract's `Idempotency-Key`."""
    await story.call()
    headers = lab.token("paladin") | {"Idempotency-Key": "once"}
    answers = [await acknowledge(replica, story.run, headers) for _ in range(3)]
    assert len({answer.content for answer in answers}) == 1
    assert sum(event["type"].endswith("acknowledged") for event in story.journal.streams[story.campaign]) == 1


async def test_a_closed_run_has_its_review_announced_once(
    lab: Lab, replica: Replica, story: Story, nats_server: NatsServer
) -> None:
    """N1: to the principal, with how much is open and until when."""
    async with (
        subscribed(nats_server.subscriber_url, "takeback.*.review.ready") as heard,
        replica.listen(story.campaign, lab.token("paladin")) as ear,
    ):
        await story.call(seconds=7200)
        soon = await story.call(seconds=60)
        closed = await story.close()
        await story.journal.publish(closed, again=True)
        live = json.loads((await ear.until("review.ready")).data)
        last = await story.member("bard", "member")
        while json.loads((await ear.next()).data)["id"] != last["id"]:
            pass
        await eventually(lambda: heard)
    assert heard == [live]
    assert live["data"] == {
        "run": story.run, "campaign": story.campaign, "principal": "paladin", "agent": "ranger", "open": 2,
        "nextDeadline": live["data"]["nextDeadline"],
    }  # fmt: skip
    assert datetime.fromisoformat(live["data"]["nextDeadline"]) == datetime.fromisoformat(
        story.entries[soon]["undo"]["undoBy"]
    )
    assert (await read(replica, story.run, lab.token("paladin"))).json()["status"] == "closed"


@pytest.mark.parametrize("body", [b"{", b'{"entries": 1}', b'{"entries": ["a", "\\u0000"]}', b'{"a":1,"a":2}', b"[]"])
async def test_a_body_that_is_off_is_refused_and_nothing_is_recorded(
    lab: Lab, replica: Replica, story: Story, body: bytes
) -> None:
    answer = await replica.http.post(
        f"/v1/runs/{story.run}/review/acknowledgement", headers=lab.token("paladin"), content=body
    )
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert not any(event["type"].endswith("acknowledged") for event in story.journal.streams[story.campaign])


async def test_the_tables_are_those_of_the_migrations(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    rows = await connection.fetch(
        "select table_name, column_name, is_nullable = 'YES' as nullable from information_schema.columns "
        "where table_schema = 'notifier' and table_name <> 'alembic_version'"
    )
    await connection.close()
    migrated = {(row["table_name"], row["column_name"], row["nullable"]) for row in rows}
    described = {
        (table.name, column.name, column.nullable)
        for table in tables.metadata.tables.values()
        for column in table.columns
    }
    assert migrated == described
