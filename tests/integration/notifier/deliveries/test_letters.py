"""Letters to people, through a real mail server: one each, saying everything, and again only where nobody can know (N1, N7)."""

import asyncio
from typing import Any

from takeback.ids import new_id
from tests.integration.notifier.deliveries.conftest import Owner
from tests.integration.notifier_lab import Lab, Story, entry_view
from tests.integration.receivers import HookServer, MailServer, subject_of, text_of
from tests.waiting import eventually


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
    lab: Lab, story: Story, mail: MailServer, hooks: HookServer
) -> None:
    """N7: an attempt has a deadline, and nobody else waits for it."""
    released = asyncio.Event()

    async def slow() -> str:
        await released.wait()
        return "451 too late"

    mail.answers = [slow]
    async with lab.notifier(delivery_deadline_seconds="5") as replica:
        owner = Owner(lab, replica, story)
        await owner.hook("ops", f"{hooks.url}/ops", "review.ready")
        await story.call()
        await story.close()
        await eventually(lambda: not mail.answers)
        await eventually(lambda: hooks.requests)
        assert mail.letters == []
        delivery = await owner.one("accepted", channel="email")
        released.set()
    assert delivery["attempts"] == 2


async def test_what_a_mail_server_has_taken_is_delivered_though_it_never_answers_the_goodbye(
    story: Story, mail: MailServer, owner: Owner
) -> None:
    """N7: it is not sent again for that."""
    mail.parting = asyncio.Event()
    await story.call()
    await story.close()
    delivery = await owner.one("accepted", channel="email")
    mail.parting.set()
    assert (delivery["attempts"], len(mail.letters)) == (1, 1)


async def test_a_reminder_counts_as_delivered_when_the_mail_server_has_taken_it(
    story: Story, mail: MailServer, hooks: HookServer, owner: Owner
) -> None:
    """N3, N4: the acceptance becomes a fact of the journal, and the webhooks hear of that."""
    terms = {"leadSeconds": 3600, "escalateAfterSeconds": 3600, "escalateTo": "cleric"}
    by = {"sub": "gm", "kind": "human"}
    await story.tell("policy.changed", {"campaign": story.campaign, "policy": {"reminders": terms}, "by": by})
    await owner.hook("ops", f"{hooks.url}/ops", "window.reminded")
    await story.call(seconds=50)
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
    await eventually(lambda: owner.accepted("cleric", 30))
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
