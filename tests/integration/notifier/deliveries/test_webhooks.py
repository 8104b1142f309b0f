"""Webhooks and chat: each delivered, retried, none lost or doubled, dead letters visible (N6, N7)."""

import asyncio
import time
from typing import Any

import asyncpg

from notifier import outgoing
from notifier.deliveries.ledger import Ledger
from notifier.rebuild import rebuild
from takeback.database import connect_pool
from tests.integration.notifier.deliveries.conftest import EVENTS, Owner
from tests.integration.notifier_lab import Lab, Replica, Story
from tests.integration.receivers import HookServer, MailServer, Request
from tests.waiting import eventually


async def test_a_webhook_gets_the_events_that_it_wants_signed_so_that_standard_libraries_take_them(
    hooks: HookServer, story: Story, owner: Owner
) -> None:
    """N6, N7: the CloudEvent as it is on the bus; the secret is told once; the id of each is its own."""
    made = (await owner.hook("ops", f"{hooks.url}/ops")).json()
    entry = await story.call()
    reverted = await story.revert(entry)
    await story.close()
    await eventually(lambda: len(hooks.requests) == 3)
    assert {request.event["type"].removeprefix("io.github.takeback.") for request in hooks.requests} == set(EVENTS)
    assert all(request.is_signed_with(made["secret"]) for request in hooks.requests)
    assert not hooks.requests[0].is_signed_with("whsec_" + "A" * 43 + "=")
    assert len({request.id for request in hooks.requests}) == 3
    assert (reverted["id"], reverted["data"]) in [(one.event["id"], one.event["data"]) for one in hooks.requests]
    assert hooks.requests[0].headers["content-type"].startswith("application/cloudevents+json")
    again = (await owner.hook("ops", f"{hooks.url}/ops", "entry.failed")).json()
    [listed] = await owner.webhooks()
    assert 'takeback_deliveries_total{channel="webhook",outcome="accepted"}' in (await owner.metrics())
    assert "secret" not in again
    assert "secret" not in listed
    assert listed["types"] == ["entry.failed"]
    moved = (await owner.hook("ops", f"{hooks.url}/other", "entry.failed")).json()
    assert moved["secret"] != made["secret"]


async def test_a_receiver_that_fails_is_asked_again_under_the_same_id_until_it_accepts(
    hooks: HookServer, story: Story, owner: Owner
) -> None:
    """N7: each retried, none doubled."""
    answers = [(500, {}), (302, {"location": f"{hooks.url}/elsewhere"}), (429, {"retry-after": "0"})]
    hooks.answers["/ops"] = lambda _: answers.pop(0) if answers else (204, {})
    await owner.hook("ops", f"{hooks.url}/ops")
    await story.call()
    delivery = await owner.one("accepted", channel="webhook")
    assert [request.id for request in hooks.at("/ops")] == [delivery["id"]] * 4
    assert delivery["attempts"] == 4
    assert hooks.at("/elsewhere") == []


async def test_what_nobody_accepts_becomes_a_dead_letter_that_can_be_seen_and_sent_again(
    hooks: HookServer, story: Story, owner: Owner, lab: Lab, replica: Replica
) -> None:
    """N7: dead letters visible; sent again under the id that it had; only an owner, only in person."""
    hooks.answers["/ops"] = lambda _: (500, {})
    await owner.hook("ops", f"{hooks.url}/ops")
    await story.call()
    dead = await owner.one("dead", target="ops")
    assert dead["error"] == "it answered 500; tried 4 times"
    assert dead["type"] == "entry.committed"
    path = f"/v1/campaigns/{story.campaign}/deliveries/{dead['id']}/retry"
    refused = [
        (await replica.http.post(path, headers=headers)).status_code
        for headers in (lab.token("cleric"), lab.token("gm", "service"), lab.token("stranger"))
    ]
    assert refused == [403, 403, 404]
    assert story.journal.refused[-1]["what"] == "send a delivery again"
    hooks.answers["/ops"] = lambda _: (200, {})
    assert (await owner.send_again(dead["id"])).status_code == 202
    assert (await owner.one("accepted", target="ops"))["id"] == dead["id"]
    assert {request.id for request in hooks.requests} == {dead["id"]}
    assert (await owner.send_again(dead["id"])).status_code == 409


async def test_a_receiver_that_says_gone_is_asked_no_more(hooks: HookServer, story: Story, owner: Owner) -> None:
    """N7: 410 disables the webhook; it says so, and what is sent again needs a webhook first."""
    hooks.answers["/ops"] = lambda _: (410, {})
    await owner.hook("ops", f"{hooks.url}/ops")
    await story.call()
    dead = await owner.one("dead", target="ops")
    [webhook] = await owner.webhooks()
    assert "410" in webhook["disabled"]
    assert (await owner.send_again(dead["id"])).status_code == 409
    await story.call()
    await owner.hook("ops", f"{hooks.url}/back")
    last = await story.call()
    await eventually(lambda: hooks.at("/back"))
    assert [request.event["data"]["entry"]["id"] for request in hooks.requests[1:]] == [last]


async def test_a_slow_receiver_delays_nobody_else(lab: Lab, hooks: HookServer, story: Story) -> None:
    """N7: the quick one has all its events while the slow one still holds its first."""
    hooks.holds["/slow"] = asyncio.Event()
    patience = {"delivery_deadline_seconds": "3", "webhook_retry_seconds": ",".join(["0.02"] * 30)}
    async with lab.notifier(**patience) as replica:
        owner = Owner(lab, replica, story)
        await owner.hook("slow", f"{hooks.url}/slow")
        await owner.hook("quick", f"{hooks.url}/quick")
        began = time.monotonic()
        for _ in range(20):
            await story.call()
        await eventually(lambda: len(hooks.at("/quick")) == 20)
        # Eight side by side, and the next ones when those have run into their deadline.
        assert len(hooks.at("/slow")) <= 8 * (1 + int((time.monotonic() - began) / 3))
        assert [one for one in await owner.deliveries("accepted") if one["target"] == "slow"] == []
        late = await eventually(lambda: _retried(owner))
        assert late["error"] == "no answer within 3 s"
        hooks.holds.pop("/slow").set()
        await eventually(lambda: owner.accepted("slow", 20))


async def _retried(owner: Owner) -> dict[str, Any] | None:
    return next((one for one in await owner.deliveries("waiting") if one["error"]), None)


async def test_an_address_that_may_not_be_reached_is_refused_when_it_is_named(lab: Lab, story: Story) -> None:
    """N7: SSRF-safe; the person hears at once what is wrong."""
    refused = {
        "http://hooks.example.com/": "https",
        "https://127.0.0.1/": "no public address",
        "https://localhost:8443/": "no public address",
        "https://[::ffff:169.254.169.254]/": "no public address",
        "https://user:secret@hooks.example.com/": "no user or password",
        "ftp://hooks.example.com/": "begins with",
        "json://127.0.0.1:80/": "TAKEBACK_WEBHOOK_ALLOW_PRIVATE",
        "ntfy://192.168.0.1/topic": "TAKEBACK_WEBHOOK_ALLOW_PRIVATE",
        "dbus://": "begins with",
        "slack://nothing": "no URL of slack",
        "https://hooks.exa\u0000mple.com/": "",
    }
    async with lab.notifier(webhook_allow_private="0") as replica:
        owner = Owner(lab, replica, story)
        for url, says in refused.items():
            answer = await owner.hook("ops", url, "review.ready")
            assert 400 <= answer.status_code < 500, (url, answer.text)
            assert says in answer.json()["detail"]
        assert await owner.webhooks() == []


async def test_an_address_that_turns_private_later_is_refused_when_it_is_sent_to(
    lab: Lab, story: Story, hooks: HookServer, database: asyncpg.Connection
) -> None:
    """N7: what counts is where the connection goes, not what the name said when it was typed in."""
    async with lab.notifier(webhook_allow_private="0") as replica:
        owner = Owner(lab, replica, story)
        assert (await owner.hook("ops", "https://hooks.invalid/")).status_code == 200
        await database.execute("update webhooks set url = $1", f"{hooks.url.replace('127.0.0.1', 'localhost')}/ops")
        await story.call()
        dead = await owner.one("dead", target="ops")
    assert "no public address" in dead["error"]
    assert hooks.requests == []


async def test_a_rebuild_sends_nothing_again(
    lab: Lab, story: Story, hooks: HookServer, mail: MailServer, replica: Replica, owner: Owner
) -> None:
    """N7: the ledger is the notifier's own truth; even a webhook named since hears nothing of what was before it."""
    await owner.hook("ops", f"{hooks.url}/ops")
    await story.revert(await story.call())
    await story.call()
    await story.close()
    await eventually(lambda: len(hooks.requests) == 4 and mail.letters)
    await owner.hook("new", f"{hooks.url}/new", "*")
    await rebuild(lab.environ)
    await replica.notifier.handlers.sweep()
    last = await story.call()
    await eventually(lambda: hooks.at("/new") and len(hooks.at("/ops")) == 5)
    assert [request.event["data"]["entry"]["id"] for request in hooks.at("/new")] == [last]
    assert len(mail.letters) == 1


async def test_a_chat_is_told_in_words(story: Story, hooks: HookServer, owner: Owner) -> None:
    """N7: over apprise; a hostile name calls nobody."""
    chat = hooks.url.replace("http://", "json://") + "/room"
    made = await owner.hook("team", chat, "review.ready", "window.reminded")
    assert made.status_code == 200, made.text
    assert "secret" not in made.json()
    assert (await owner.hook("other", chat, "entry.committed")).status_code == 422
    await story.call(operation="hurt @everyone")
    await story.close()
    [request] = await eventually(lambda: hooks.at("/room"))
    said: Request = request
    assert said.event["title"].startswith("Table: 1 call of ranger can still be taken back, for ")
    assert "@everyone" not in said.event["message"]
    assert "everyone" in said.event["message"]
    assert (await owner.one("accepted", channel="chat"))["target"] == "team"


async def test_a_worker_rests_while_nothing_waits_that_it_could_send(
    story: Story, hooks: HookServer, owner: Owner, lab: Lab
) -> None:
    """N7: neither an empty ledger nor a receiver that is being served keeps it asking."""
    pool = await connect_pool(lab.environ["TAKEBACK_POSTGRES_URL"], "notifier")
    ledger = Ledger(pool, outgoing.accepted, 40, 3600)
    assert await ledger.next_due_seconds([]) is None
    hooks.holds["/slow"] = asyncio.Event()
    await owner.hook("slow", f"{hooks.url}/slow")
    await story.call()
    await eventually(lambda: hooks.requests)
    assert await ledger.next_due_seconds([("webhook", story.campaign, "slow")]) is None
    due = await ledger.next_due_seconds([])
    assert due is not None
    assert 0 < due <= 40
    hooks.holds.pop("/slow").set()
    await pool.close()


async def test_removing_a_webhook_lets_go_of_what_waited_for_it(
    story: Story, hooks: HookServer, owner: Owner, replica: Replica, lab: Lab
) -> None:
    """N7: nothing vanishes."""
    hooks.holds["/slow"] = asyncio.Event()
    await owner.hook("slow", f"{hooks.url}/slow")
    await story.call()
    await eventually(lambda: hooks.requests)
    path = f"/v1/campaigns/{story.campaign}/webhooks/slow"
    assert (await replica.http.delete(path, headers=lab.token("cleric"))).status_code == 403
    assert (await replica.http.delete(path, headers=lab.token("gm"))).status_code == 204
    assert (await owner.one("dead", target="slow"))["error"] == "the webhook was removed"
    assert (await replica.http.delete(path, headers=lab.token("gm"))).status_code == 404
    assert await owner.webhooks() == []
    hooks.holds.pop("/slow").set()
