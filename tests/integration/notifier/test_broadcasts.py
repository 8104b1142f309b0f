"""What is taken back is told to everybody, once, whatever happens to the bus and the notifier (N5)."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from notifier.rebuild import rebuild
from notifier.remembering import KEPT
from notifier.tables import PROJECTION
from takeback import json
from takeback.subjects import STREAM
from tests.integration.notifier_lab import Lab, StandInJournal, Story, connected, subscribed
from tests.servers import NatsServer
from tests.waiting import eventually

TOLD = "takeback.*.broadcast.>"


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def announced(database: asyncpg.Connection, published: bool = True) -> list[dict[str, Any]]:
    """What the ledger says was told."""
    rows = await database.fetch(
        "select event from notifier.announcements where published_at is not null = $1 order by number", published
    )
    return [json.loads(row["event"]) for row in rows]


async def test_a_verified_reversal_is_told_to_clients_and_subscribers_with_source_system(
    lab: Lab, story: Story, nats_server: NatsServer
) -> None:
    """N5: one for each verified entry, with whether its whole interaction is now taken back."""
    async with (
        subscribed(nats_server.subscriber_url, TOLD) as heard,
        lab.notifier() as replica,
        replica.listen(story.campaign, lab.token("paladin")) as ear,
    ):
        first, second = await story.call(), await story.call(operation="move_token")
        await story.call(kind="read", operation="look")
        await story.revert(second)
        await story.revert(first)
        live = [json.loads((await ear.until("broadcast.interaction_reverted")).data) for _ in range(2)]
        await eventually(lambda: len(heard) == 2)
    assert heard == live
    assert [event["data"] for event in live] == [
        {
            "type": "interaction_reverted", "invocationId": second, "toolName": "move_token", "interaction": "turn-1",
            "interactionComplete": False, "source": "system",
        },
        {
            "type": "interaction_reverted", "invocationId": first, "toolName": "damage_creature",
            "interaction": "turn-1", "interactionComplete": True, "source": "system",
        },
    ]  # fmt: skip
    assert live[0]["type"] == "io.github.takeback.broadcast.interaction_reverted"


async def test_an_entry_that_was_made_good_again_and_taken_back_anew_is_told_anew(
    lab: Lab, story: Story, database: asyncpg.Connection
) -> None:
    """N5: one for each reversal, and not one for each entry."""
    async with lab.notifier():
        entry = await story.call()
        await story.revert(entry)
        await story.restore(entry)
        await story.revert(entry)
        told = await eventually(lambda: _announced(database, 2))
    assert [event["data"]["invocationId"] for event in told] == [entry, entry]


async def _announced(database: asyncpg.Connection, count: int) -> list[dict[str, Any]] | None:
    told = await announced(database)
    return told if len(told) == count else None


async def test_broadcasts_of_a_tool_and_of_a_person_carry_their_provenance(
    lab: Lab, story: Story, nats_server: NatsServer
) -> None:
    """N5: `ai_tool_execution`, `user`; only a person broadcasts."""
    path = f"/v1/campaigns/{story.campaign}/broadcasts"
    async with subscribed(nats_server.subscriber_url, TOLD) as heard, lab.notifier() as replica:
        entry = await story.call(broadcasts=[{"type": "hp_changed", "hp": 4}, {"type": "sound"}])
        await eventually(lambda: len(heard) == 2)
        sent = await replica.http.post(path, json={"payload": {"say": "hello"}}, headers=lab.token("paladin"))
        await eventually(lambda: len(heard) == 3)
        agent = await replica.http.post(path, json={"payload": 1}, headers=lab.token("ranger", "agent"))
        stranger = await replica.http.post(path, json={"payload": 1}, headers=lab.token("stranger"))
        wrong = await replica.http.post(path, json={"text": 1}, headers=lab.token("paladin"))
    assert [event["data"] for event in heard] == [
        {"source": "ai_tool_execution", "payload": {"type": "hp_changed", "hp": 4}, "entry": entry, "by": "ranger"},
        {"source": "ai_tool_execution", "payload": {"type": "sound"}, "entry": entry, "by": "ranger"},
        {"source": "user", "payload": {"say": "hello"}, "entry": None, "by": "paladin"},
    ]
    assert sent.json() == {"id": heard[2]["id"]}
    assert (agent.status_code, agent.json()["type"].rsplit("/", 1)[1]) == (403, "human-required")
    assert (stranger.status_code, wrong.status_code) == (404, 422)


async def test_the_same_broadcast_request_again_is_sent_once(
    lab: Lab, story: Story, database: asyncpg.Connection
) -> None:
    """The contract's `Idempotency-Key`: the same answer; with another body 422."""
    path = f"/v1/campaigns/{story.campaign}/broadcasts"
    headers = lab.token("paladin") | {"Idempotency-Key": "k-1"}
    async with lab.notifier() as replica:
        answers = [await replica.http.post(path, json={"payload": "a"}, headers=headers) for _ in range(3)]
        other = await replica.http.post(path, json={"payload": "b"}, headers=headers)
        await eventually(lambda: _announced(database, 1))
    assert len({answer.content for answer in answers}) == 1
    assert other.status_code == 422


async def test_events_that_the_bus_delivers_again_are_told_once(
    lab: Lab, story: Story, database: asyncpg.Connection
) -> None:
    """N5."""
    async with lab.notifier() as replica, replica.listen(story.campaign, lab.token("paladin")) as ear:
        entry = await story.call()
        reverted = await story.revert(entry)
        for _ in range(3):
            await story.journal.publish(reverted, again=True)
        last = await story.call()
        heard = []
        while not heard or heard[-1][1].get("entry", {}).get("id") != last:
            event = await ear.next()
            heard.append((event.event, json.loads(event.data)["data"]))
        assert await database.fetchval("select count(*) from notifier.announcements") == 1
    assert [kind for kind, _ in heard] == [
        "entry.committed", "entry.reverted", "broadcast.interaction_reverted", "entry.committed",
    ]  # fmt: skip


async def test_a_rebuild_gives_the_same_projection_and_tells_nothing_again(
    lab: Lab, story: Story, database: asyncpg.Connection, nats_server: NatsServer
) -> None:
    """N5: beside a running replica; the feed keeps its epoch, so that clients resume."""
    async with lab.notifier() as replica:
        entries = [await story.call(broadcasts=[1]) for _ in range(3)]
        await story.revert(entries[1])
        await story.close()
        body = {"run": story.run, "campaign": story.campaign, "entries": entries, "by": {"sub": "gm", "kind": "human"}}
        await story.tell("review.acknowledged", body)
        await story.member("bard", "approver")
        await story.member("bard", None)
        await eventually(lambda: _announced(database, 6))
        await eventually(lambda: _has_position(database, story))
        before, fed = await _projection(database), await database.fetch("select * from notifier.feed order by seq")
        async with (
            subscribed(nats_server.subscriber_url, "takeback.>") as heard,
            replica.listen(story.campaign, lab.token("paladin")) as ear,
        ):
            assert "2 streams" in await rebuild(lab.environ)
            await replica.notifier.handlers.sweep()
            after = await _projection(database)
            last = await story.call()
            assert json.loads((await ear.next()).data)["data"]["entry"]["id"] == last
            await eventually(lambda: heard)
    assert after == before
    assert [event["data"]["entry"]["id"] for event in heard] == [last]
    assert (await database.fetch("select * from notifier.feed order by seq"))[: len(fed)] == fed


async def test_what_was_told_so_long_ago_that_nobody_remembers_it_is_not_told_again(
    lab: Lab, journal: StandInJournal, database: asyncpg.Connection, nats_server: NatsServer
) -> None:
    """N5: after the ledgers were trimmed, neither a rebuild nor a lost bus nor a lost projection tells anything again."""
    story, long_ago = Story(journal), KEPT + timedelta(hours=1)
    journal.age = long_ago
    await story.begin()
    async with lab.notifier():
        entries = [await story.call(broadcasts=[1], seconds=seconds) for seconds in (3600, -long_ago.total_seconds())]
        await story.revert(entries[0])
        await story.close()
        await eventually(lambda: _announced(database, 4))
        await eventually(lambda: _has_position(database, story))
    for column in ("created_at", "published_at"):
        await database.execute(f"update notifier.announcements set {column} = {column} - $1::interval", long_ago)
    await database.execute("update notifier.outgoing set created_at = created_at - $1::interval", long_ago)
    await database.execute("delete from notifier.deliveries")
    async with subscribed(nats_server.subscriber_url, TOLD) as heard, lab.notifier() as replica:
        await eventually(lambda: _is_empty(database, "announcements", "outgoing", "told"))
        await rebuild(lab.environ)
        for chain in journal.streams.values():
            for event in chain:
                await journal.publish(event, again=True)
        for table in PROJECTION:
            await database.execute(f"delete from notifier.{table.name}")
        await replica.notifier.handlers.sweep()
        await eventually(lambda: _has_position(database, story))
        journal.age = timedelta()
        await story.revert(await story.call(seconds=60))
        await eventually(lambda: heard)
        await eventually(lambda: _announced(database, 1))
        assert await _is_empty(database, "outgoing", "told")
        assert await database.fetchval("select count(*) from notifier.announcements") == 1
    assert len(heard) == 1


async def _is_empty(database: asyncpg.Connection, *tables: str) -> bool:
    return not any([await database.fetchval(f"select count(*) from notifier.{table}") for table in tables])


async def _has_position(database: asyncpg.Connection, story: Story) -> bool:
    rows = dict(await database.fetch("select stream, seq from notifier.positions"))
    return all(rows.get(stream) == len(chain) for stream, chain in story.journal.streams.items())


async def _projection(database: asyncpg.Connection) -> dict[str, list[asyncpg.Record]]:
    return {
        table.name: await database.fetch(f"select * from notifier.{table.name} t order by t::text")
        for table in PROJECTION
    }


async def test_losing_all_of_jetstream_loses_no_reversal_and_tells_none_twice(
    lab: Lab, story: Story, database: asyncpg.Connection, nats_server: NatsServer
) -> None:
    """Must hold: delete all JetStream data and restart; the last event of a run included."""
    async with lab.notifier(sweep_seconds="0.2"):
        first, second = await story.call(), await story.call()
        await story.revert(first)
        await eventually(lambda: _announced(database, 1))
        await nats_server.kill()
        nats_server.forget_streams()
        await story.revert(second, publish=False)  # acknowledged by the JetStream that lost it
        await nats_server.start()
        told = await eventually(lambda: _announced(database, 2))
        carried = await _carried(nats_server.url)
    assert [event["data"]["invocationId"] for event in told] == [first, second]
    assert carried == [told[1]]


async def _carried(nats_url: str) -> list[dict[str, Any]]:
    """The broadcasts in JetStream's stream, which began empty: nobody can have come too late to hear one."""
    async with connected(nats_url) as client:
        js = client.jetstream()
        count = (await js.stream_info(STREAM, subjects_filter=TOLD)).state.subjects or {}
        broadcasts = await js.subscribe(TOLD, ordered_consumer=True)
        return [json.loads((await broadcasts.next_msg(timeout=5)).data) for _ in range(sum(count.values()))]


async def test_what_a_crash_left_unpublished_is_published_once_by_the_next_replica(
    lab: Lab, story: Story, database: asyncpg.Connection, nats_server: NatsServer
) -> None:
    """N5: announced in the transaction of the event, published after it."""
    async with lab.notifier():
        await story.revert(await story.call())
        await eventually(lambda: _announced(database, 1))
    await database.execute("update notifier.announcements set published_at = null, id = id || 'x'")
    async with subscribed(nats_server.subscriber_url, TOLD) as heard, lab.notifier(), lab.notifier():
        await eventually(lambda: _announced(database, 1))
        await story.revert(await story.call())
        await eventually(lambda: len(heard) == 2)


async def test_a_journal_that_was_restored_is_read_again_and_its_new_events_are_told(
    lab: Lab, story: Story, database: asyncpg.Connection
) -> None:
    """A restore of the journal forks a stream: what comes after the fork is new, what came before is not told again."""
    async with lab.notifier() as replica, replica.listen(story.campaign, lab.token("paladin")) as ear:
        kept, lost = await story.call(), await story.call()
        await story.revert(kept)
        await story.revert(lost)
        await eventually(lambda: _announced(database, 2))
        del story.journal.streams[story.run][-1]
        again = await story.call()
        await ear.until("broadcast.interaction_reverted")
        await ear.until("broadcast.interaction_reverted")
        await replica.notifier.handlers.sweep()
        assert json.loads((await ear.next()).data)["data"]["entry"]["id"] == again
        assert len(await announced(database)) == 2
        views = await database.fetch("select entry, status from notifier.entries order by place")
    assert dict(views) == {kept: "reverted", lost: "committed", again: "committed"}
