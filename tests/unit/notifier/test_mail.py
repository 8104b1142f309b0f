"""A letter as it goes out: headers that nobody breaks, two parts that say the same (N7)."""

from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy

import pytest

from notifier.deliveries.ledger import Delivery, Parcel
from notifier.deliveries.letters import Item, News, compose
from notifier.deliveries.mail import MailSender

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
HOSTILE = "deal\r\nBcc: all@acme.example\r\n\r\n<img src=x onerror=alert(1)>{{ 7 * 7 }}\u202e\x00\ud7ff"


def parcel(batch: str | None = None) -> Parcel:
    delivery = Delivery("dlv_2", "cmp_1", "email", "anna", "window.reminder", "msg_1", b"{}", 1, batch, NOW, NOW)
    return Parcel(("email", "cmp_1", "anna"), [delivery])


def news(text: str) -> News:
    items = (Item("e1", text, text, NOW + timedelta(hours=2)), Item(text, "heal", None, None, text))
    return News("window.reminder", text, "/console/runs/run_1/review", items, text)


def sender(url: str = "smtp://127.0.0.1:1", console: str = "https://takeback.acme.example") -> MailSender:
    return MailSender(url, "takeback@acme.example", console, 1.0)


def test_no_text_of_a_campaign_becomes_a_header_or_a_tag() -> None:
    """N7: header injection is impossible, hostile strings are escaped, templates render values only."""
    letter = compose("cmp_1", [news(HOSTILE)], "https://takeback.acme.example", NOW)
    sent = sender().message(parcel(), "anna@acme.example", letter, NOW).as_bytes()
    read = message_from_bytes(sent, policy=policy.default)
    assert read["Bcc"] is None
    assert sent.lower().count(b"\nbcc:") == 0
    text, html = read.get_body(("plain",)), read.get_body(("html",))
    assert text is not None
    assert html is not None
    assert "<img" not in html.get_content()
    assert "&lt;img" in html.get_content()
    assert "{{ 7 * 7 }}" in text.get_content()
    for part in (text, html):
        assert "\u202e" not in part.get_content()
        assert "Mon 30 Nov 2026, 14:00 UTC" in part.get_content()
        assert "https://takeback.acme.example/console/runs/run_1/review" in part.get_content()


def test_every_attempt_at_a_digest_carries_the_same_message_id() -> None:
    """N7: whichever of its deliveries comes first."""
    letter = compose("cmp_1", [news("heal")], "", NOW)
    assert sender().message(parcel("dlv_1"), "anna@acme.example", letter, NOW)["Message-ID"] == "<dlv_1@acme.example>"


def test_without_an_address_of_the_console_a_letter_has_no_links() -> None:
    letter = compose("cmp_1", [news("heal")], "", NOW)
    assert "Look at it: " not in sender(console="").message(parcel(), "anna@acme.example", letter, NOW).as_string()


@pytest.mark.parametrize(
    "address", ["", "anna", "anna@", "anna@acme.example\r\nBcc: all@acme.example", "a@b, c@d", "<anna@acme.example> x"]
)
async def test_an_address_that_is_none_makes_a_dead_letter_and_no_mail(address: str) -> None:
    """N7."""
    verdict = await sender().send(parcel(), address, "Deals", [news("heal")], NOW)
    assert verdict.outcome == "dead"
    assert verdict.reason.startswith("the address cannot be used")


async def test_a_mail_server_that_is_away_is_tried_again() -> None:
    """N7."""
    assert (await sender().send(parcel(), "anna@acme.example", "Deals", [news("heal")], NOW)).outcome == "retry"
