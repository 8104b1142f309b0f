"""E-mail: one letter of everything that waits for a person, as text and as HTML (N1, N3, N7).

A repeat carries the same Message-ID, so that mail programs drop it; letters about a campaign carry its List-Id, so that they
can be sorted. Values only ever reach a header through the standard library's header types, which take no line breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from urllib.parse import unquote, urlsplit

import aiosmtplib
from jinja2 import Environment, PackageLoader, StrictUndefined

from notifier.deliveries import letters
from notifier.deliveries.ledger import Parcel
from notifier.deliveries.letters import Letter, News
from notifier.deliveries.verdict import ACCEPTED, Verdict
from takeback.errors import words_of

_DEAD_FROM = 500
_GOODBYE_SECONDS = 1.0


class MailSender:
    """Sends over the SMTP server at *url* (``smtp://user:password@host:port``, ``smtps://…``), as *sender*.

    Without a URL nothing is sent, and each letter says so in the ledger. *console* is the URL that links lead to, if any.
    """

    def __init__(self, url: str, sender: str, console: str, deadline_seconds: float) -> None:
        self._server = urlsplit(url) if url else None
        self._sender = Address(addr_spec=sender)
        self._console = console
        self._deadline_seconds = deadline_seconds
        loader = PackageLoader("notifier.deliveries")
        shared = {"undefined": StrictUndefined, "keep_trailing_newline": True}
        self._text = Environment(loader=loader, autoescape=False, **shared).get_template("letter.txt.j2")  # type: ignore[arg-type]  # noqa: S701
        self._html = Environment(loader=loader, autoescape=True, **shared).get_template("letter.html.j2")  # type: ignore[arg-type]

    async def send(
        self, parcel: Parcel, address: str | None, campaign: str, news: Sequence[News], now: datetime
    ) -> Verdict:
        """One attempt about the campaign called *campaign*.

        What the server refuses for good (5xx) is dead, what it refuses for now is sent again.
        """
        if self._server is None:
            return Verdict("not_configured", "e-mail is not configured: TAKEBACK_SMTP_URL is not set")
        if address is None:
            return Verdict("not_configured", f"{parcel.lane[2]} has no e-mail address in this campaign")
        try:
            message = self.message(parcel, address, letters.compose(campaign, news, self._console, now), now)
        except (ValueError, HeaderParseError, IndexError) as error:
            return Verdict("dead", f"the address cannot be used: {error}")
        server = self._connection()
        try:
            async with asyncio.timeout(self._deadline_seconds):
                await server.connect()
                await server.send_message(message)
            await _part_from(server)
        except (aiosmtplib.SMTPException, OSError) as error:
            return _failed(error)
        finally:
            server.close()  # at once: one that does not answer would not answer a goodbye either
        return ACCEPTED

    def message(self, parcel: Parcel, address: str, letter: Letter, now: datetime) -> EmailMessage:
        """The letter as it goes out; raises ValueError and `HeaderParseError` for an address that is none."""
        recipient = Address(addr_spec=address)
        if not recipient.domain:
            raise ValueError("it names no domain")
        message = EmailMessage(policy=SMTP if address.isascii() else SMTPUTF8)
        domain = self._sender.domain or "localhost"
        message["From"] = Address("Takeback", addr_spec=self._sender.addr_spec)
        message["To"] = recipient
        message["Subject"] = letter.subject
        message["Date"] = parcel.deliveries[0].created_at
        message["Message-ID"] = f"<{parcel.id}@{domain}>"
        message["List-Id"] = f"<{parcel.lane[1].lower()}.takeback.{domain}>"
        message["Auto-Submitted"] = "auto-generated"
        told = {"letter": letter, "now": letters.instant(now), "id": parcel.id, "linked": bool(self._console)}
        message.set_content(self._text.render(told))
        message.add_alternative(self._html.render(told), subtype="html")
        return message

    def _connection(self) -> aiosmtplib.SMTP:
        """To the mail server; not opened yet."""
        server = self._server
        assert server is not None
        return aiosmtplib.SMTP(
            hostname=server.hostname,
            port=server.port or (465 if server.scheme == "smtps" else 25),
            username=unquote(server.username) if server.username else None,
            password=unquote(server.password) if server.password else None,
            use_tls=server.scheme == "smtps",
            # TLS wherever the server offers it; a relay on this machine has no name that a certificate could be for.
            start_tls=False
            if server.scheme == "smtps" or server.hostname in ("127.0.0.1", "localhost", "::1")
            else None,
            timeout=self._deadline_seconds,
        )


async def _part_from(server: aiosmtplib.SMTP) -> None:
    """Says goodbye. What was taken over stays so, whatever becomes of that."""
    with contextlib.suppress(aiosmtplib.SMTPException, OSError):
        async with asyncio.timeout(_GOODBYE_SECONDS):
            await server.quit()


def _failed(error: Exception) -> Verdict:
    """What an error means for the letter: only a server that refuses it for good ends it."""
    match error:
        case aiosmtplib.SMTPAuthenticationError():
            return Verdict("retry", f"the mail server does not know us: {error.code} {letters.one_line(error.message)}")
        case aiosmtplib.SMTPRecipientsRefused():
            return _answered(error.recipients[0].code, error.recipients[0].message)
        case aiosmtplib.SMTPResponseException():
            return _answered(error.code, error.message)
        case _:
            return Verdict("retry", f"the mail server: {words_of(error)}")


def _answered(code: int, message: str) -> Verdict:
    return Verdict(
        "dead" if code >= _DEAD_FROM else "retry", f"the mail server answered {code} {letters.one_line(message)}"
    )
