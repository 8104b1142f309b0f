"""E-mail, webhooks and chat: each delivered, retried, none lost or doubled, dead letters visible (N6, N7)."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from notifier import outgoing
from notifier.deliveries.ledger import Ledger
from notifier.rebuild import rebuild
from takeback.database import connect_pool
from takeback.ids import new_id
from tests.integration.notifier_lab import Lab, Replica, StandInJournal, Story, entry_view
from tests.integration.receivers import HookServer, MailServer, Request, subject_of, text_of
from tests.waiting import eventually

EVENTS = ["entry.committed", "entry.reverted", "broadcast.interaction_reverted"]


@pytest.fixture
async def hooks() -> AsyncIterator[HookServer]:
    async with HookServer.running() as hooks:
        yield hooks


@pytest.fixture
async def mail() -> AsyncIterator[MailServer]:
    async with MailServer.running() as mail:
        yield mail


@pytest.fixture
async def journal(nats_url: str) -> AsyncIterator[StandInJournal]:
    async with StandInJournal.running(nats_url) as journal:
        yield journal


@pytest.fixture
async def story(journal: StandInJournal) -> Story:
    story = Story(journal)
    await story.begin(rogue="member", cleric="approver")
    return story


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url, server_settings={"search_path": "notifier"})
    yield connection
    await connection.close()


@pytest.fixture
def lab(postgres_url: str, nats_url: str, mail: MailServer, tmp_path: Path) -> Lab:
    lab = Lab(postgres_url, nats_url, tmp_path)
    lab.environ |= {
        "TAKEBACK_SMTP_URL": mail.url,
        "TAKEBACK_SMTP_FROM": "takeback@acme.example",
        "TAKEBACK_PUBLIC_URL": "https://takeback.acme.example",
        "TAKEBACK_WEBHOOK_ALLOW_PRIVATE": "1",
        "TAKEBACK_WEBHOOK_RETRY_SECONDS": "0.02,0.02,0.02",
        "TAKEBACK_DELIVERY_DEADLINE_SECONDS": "1",
        "TAKEBACK_DELIVERY_POLL_SECONDS": "0.05",
    }
    return lab


@pytest.fixture
async def replica(lab: Lab, story: Story) -> AsyncIterator[Replica]:
    async with lab.notifier() as replica:
        yield replica


class Owner:
    """The campaign's owner at a replica's door."""

    def __init__(self, lab: Lab, replica: Replica, story: Story) -> None:
        self._http = replica.http
        self._headers = lab.token("gm")
        self._campaign = f"/v1/campaigns/{story.campaign}"

    async def hook(self, name: str, url: str, *types: str) -> httpx.Response:
        body = {"url": url, "types": list(types) or EVENTS}
        return await self._http.put(f"{self._campaign}/webhooks/{name}", headers=self._headers, json=body)

    async def deliveries(self, status: str | None = None) -> list[dict[str, Any]]:
        query = {"status": status} if status else {}
        answer = await self._http.get(f"{self._campaign}/deliveries", headers=self._headers, params=query)
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    async def one(self, status: str, **fields: str) -> dict[str, Any]:
        """The one delivery in *status* with *fields*, when there is one."""

        async def found() -> list[dict[str, Any]]:
            return [one for one in await self.deliveries(status) if fields.items() <= one.items()]

        [delivery] = await eventually(found)
        return delivery

    async def send_again(self, delivery: str) -> httpx.Response:
        return await self._http.post(f"{self._campaign}/deliveries/{delivery}/retry", headers=self._headers)

    async def metrics(self) -> str:
        return (await self._http.get("/metrics")).text

    async def webhooks(self) -> list[dict[str, Any]]:
        answer = await self._http.get(f"{self._campaign}/webhooks", headers=self._headers)
        items: list[dict[str, Any]] = answer.json()["items"]
        return items


@pytest.fixture
def owner(lab: Lab, replica: Replica, story: Story) -> Owner:
    return Owner(lab, replica, story)


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
    await eventually(owner.webhooks)
    [webhook] = await owner.webhooks()
    assert "410" in webhook["disabled"]
    assert (await owner.send_again(dead["id"])).status_code == 409
    await story.call()
    await owner.hook("ops", f"{hooks.url}/back")
    last = await story.call()
    await eventually(lambda: hooks.at("/back"))
    assert [request.event["data"]["entry"]["id"] for request in hooks.requests[1:]] == [last]


async def test_a_slow_receiver_delays_nobody_else(hooks: HookServer, story: Story, owner: Owner) -> None:
    """N7: the quick one has all its events while the slow one still holds its first."""
    hooks.holds["/slow"] = asyncio.Event()
    await owner.hook("slow", f"{hooks.url}/slow")
    await owner.hook("quick", f"{hooks.url}/quick")
    began = time.monotonic()
    for _ in range(20):
        await story.call()
    await eventually(lambda: len(hooks.at("/quick")) == 20)
    # Eight side by side, and the next ones when those have run into their deadline of a second.
    assert len(hooks.at("/slow")) <= 8 * (1 + int(time.monotonic() - began))
    assert [one for one in await owner.deliveries("accepted") if one["target"] == "slow"] == []
    late = await eventually(lambda: _retried(owner))
    assert late["error"] == "no answer within 1 s"
    hooks.holds.pop("/slow").set()
    await eventually(lambda: _accepted(owner, "slow", 20))


async def _retried(owner: Owner) -> dict[str, Any] | None:
    return next((one for one in await owner.deliveries("waiting") if one["error"]), None)


async def _accepted(owner: Owner, target: str, count: int) -> bool:
    return sum(one["target"] == target for one in await owner.deliveries("accepted")) == count


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


async def test_a_principal_gets_one_letter_when_the_run_closes_and_it_says_everything(
    story: Story, mail: MailServer, owner: Owner
) -> None:
    """N1, N7: what happened, until when in words and in UTC, the earliest first, a link; text and HTML; nothing breaks out."""
    hostile = 'deal</a><script>alert("1")</script>\r\nBcc: all@acme.example'
    await story.call(seconds=90_000, operation="update_deal")
    await story.call(seconds=7_260, operation=hostile)
    await story.close()
    letter = (await eventually(lambda: mail.to("paladin@example.org")))[0]
    delivery = await owner.one("accepted", target="paladin")
    assert letter["Message-ID"] == f"<{delivery['id']}@acme.example>"
    assert letter["List-Id"] == f"<{story.campaign}.takeback.acme.example>"
    assert subject_of(letter) == "Table: 2 calls of ranger can still be taken back, for 2 h more"
    assert letter["Bcc"] is None
    text, html = text_of(letter), text_of(letter, "html")
    assert text.index("e2 deal") < text.index("e1 update_deal")
    assert "2 h left, until " in text
    assert "UTC" in text
    assert f"https://takeback.acme.example/console/runs/{story.run}/review" in text
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "\nBcc:" not in text
    assert len(mail.letters) == 1


async def test_what_a_mail_server_refuses_for_now_is_sent_again_and_what_it_refuses_for_good_is_dead(
    story: Story, mail: MailServer, owner: Owner
) -> None:
    """N7: 4xx again, 5xx dead; each letter carries the same Message-ID every time."""
    mail.answers = ["451 later", "451 later"]
    await story.call()
    await story.close()
    await eventually(lambda: mail.letters)
    assert (await owner.one("accepted", channel="email"))["attempts"] == 3
    mail.refused["rogue@example.org"] = "550 no such person"
    await story.journal.append(
        story.run, story.campaign, "approval.requested", await approval(story, "rogue", "cleric")
    )
    dead = await owner.one("dead", target="rogue")
    assert dead["error"] == "the mail server answered 550 no such person"
    assert dead["attempts"] == 1
    await eventually(lambda: mail.to("cleric@example.org"))
    del mail.refused["rogue@example.org"]
    await owner.send_again(dead["id"])
    [letter] = await eventually(lambda: mail.to("rogue@example.org"))
    assert letter["Message-ID"] == f"<{dead['id']}@acme.example>"


async def test_a_connection_that_is_lost_after_the_letter_was_taken_gives_the_documented_repeat(
    story: Story, mail: MailServer, owner: Owner
) -> None:
    """N7: nobody can know whether it arrived, so it goes again under the Message-ID by which the repeat is dropped."""
    mail.drops = 1
    await story.call()
    await story.close()
    await owner.one("accepted", channel="email")
    first, second = mail.letters
    assert first["Message-ID"] == second["Message-ID"]


async def test_a_mail_server_that_is_slow_is_asked_again_and_the_webhooks_go_on(
    story: Story, mail: MailServer, hooks: HookServer, owner: Owner
) -> None:
    """N7: an attempt has a deadline, and nobody else waits for it."""
    released = asyncio.Event()

    async def slow() -> str:
        await released.wait()
        return "451 too late"

    mail.answers = [slow]
    await owner.hook("ops", f"{hooks.url}/ops", "review.ready")
    await story.call()
    await story.close()
    await eventually(lambda: hooks.requests)
    assert mail.letters == []
    delivery = await owner.one("accepted", channel="email")
    released.set()
    assert delivery["attempts"] == 2


async def test_a_reminder_counts_as_delivered_when_the_mail_server_has_taken_it(
    story: Story, mail: MailServer, hooks: HookServer, owner: Owner
) -> None:
    """N3, N4: the acceptance becomes a fact of the journal, and the webhooks hear of that."""
    await owner.hook("ops", f"{hooks.url}/ops", "window.reminded")
    await story.call(seconds=4)
    [letter] = await eventually(lambda: mail.to("paladin@example.org"))
    assert subject_of(letter) == "Table: 1 call of ranger can still be taken back for less than a minute more"
    await eventually(lambda: hooks.requests)
    assert hooks.requests[0].event["type"].endswith("window.reminded")
    assert (await owner.one("accepted", target="paladin"))["type"] == "window.reminder"


async def test_what_comes_together_for_a_person_is_one_letter(story: Story, mail: MailServer, owner: Owner) -> None:
    """N7: one digest rather than thirty mails; its rows share an outcome."""
    for _ in range(30):
        body = await approval(story, "cleric")
        await story.journal.append(story.run, story.campaign, "approval.requested", body, publish=False)
    await story.member("bard", "member")
    await story.journal.publish(story.journal.streams[story.run][-1])
    await eventually(lambda: _accepted(owner, "cleric", 30))
    [letter] = mail.to("cleric@example.org")
    assert subject_of(letter).endswith("and 29 more things")
    assert len({one["batch"] for one in await owner.deliveries("accepted")}) == 1


async def test_the_people_of_a_reversal_hear_what_became_of_it(story: Story, mail: MailServer, owner: Owner) -> None:
    """G10, N7: the approver and the principal, step by step."""
    entry, left = await story.call(), await story.call(operation="heal")
    await story.revert(entry)
    await story.tell("reversal.completed", reversal(story, {entry: "reverted", left: "conflict"}))
    await eventually(lambda: len(mail.letters) == 2)
    assert {str(letter["To"]) for letter in mail.letters} == {"paladin@example.org", "cleric@example.org"}
    assert subject_of(mail.letters[0]) == "Table: cleric took back 1 of 2 calls"
    text = text_of(mail.letters[0])
    assert "taken back" in text
    assert "left alone: it was changed since" in text
    assert "/console/plans/pln_1/record" in text


async def test_without_a_mail_server_letters_wait_where_they_are_seen(lab: Lab, story: Story, mail: MailServer) -> None:
    """N7: not an error loop; once there is one they go out when somebody says so."""
    async with lab.notifier(smtp_url="") as replica:
        owner = Owner(lab, replica, story)
        await story.call()
        await story.close()
        waiting = await owner.one("not_configured", target="paladin")
        assert waiting["error"] == "e-mail is not configured: TAKEBACK_SMTP_URL is not set"
        assert waiting["attempts"] == 1
    async with lab.notifier() as replica:
        assert mail.letters == []
        await Owner(lab, replica, story).send_again(waiting["id"])
        await eventually(lambda: mail.to("paladin@example.org"))


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
    ledger = Ledger(pool, outgoing.accepted, 2, 3600)
    assert await ledger.next_due_seconds([]) is None
    hooks.holds["/slow"] = asyncio.Event()
    await owner.hook("slow", f"{hooks.url}/slow")
    await story.call()
    await eventually(lambda: hooks.requests)
    assert await ledger.next_due_seconds([("webhook", story.campaign, "slow")]) is None
    due = await ledger.next_due_seconds([])
    assert due is not None
    assert 0 < due <= 2
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


async def approval(story: Story, *asked: str) -> dict[str, Any]:
    """The body of a request for approval."""
    label = f"e{len(story.entries) + 1}"
    view = entry_view(new_id("ent"), label, story.run, story.campaign, 3600) | {"status": "awaiting_approval"}
    story.entries[view["id"]] = view
    return {
        "approval": new_id("apr"), "entry": view, "asked": list(asked), "why": "it cannot be undone",
        "expiresAt": "2099-01-01T00:00:00Z",
    }  # fmt: skip


def reversal(story: Story, outcomes: dict[str, str]) -> dict[str, Any]:
    """The body of a reversal that the cleric approved."""
    at = "2026-11-30T12:00:00Z"
    receipts = [
        {"entry": entry, "outcome": outcome, "approvedBy": "cleric", "authority": "approver", "at": at}
        for entry, outcome in outcomes.items()
    ]
    record = {
        "id": "rev_1", "plan": "pln_1", "digest": "d", "campaign": story.campaign, "approvedBy": "cleric",
        "authority": "approver", "reason": "", "receipts": receipts, "at": at,
    }  # fmt: skip
    return {"plan": "pln_1", "campaign": story.campaign, "record": record}
