"""E-mail: a sender that speaks SMTP, and a sink that keeps whatever is sent, so that a visitor can look at it."""

from __future__ import annotations

import asyncio
import email.policy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import urlsplit

import aiosmtplib

SENDER = "desk@acme.example"


class Post:
    """Sends over the SMTP server at *url* (``smtp://user:password@host:port``)."""

    def __init__(self, url: str, sender: str = SENDER) -> None:
        self._url = urlsplit(url)
        self._sender = sender

    async def send(self, to: str, subject: str, body: str, key: str) -> str:
        """Send one letter; answers its Message-ID, made from *key*. Raises aiosmtplib's and the system's errors."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._sender, to, subject
        message["Message-ID"] = f"<{key}@acme.example>"
        message.set_content(body)
        await aiosmtplib.send(
            message,
            hostname=self._url.hostname,
            port=self._url.port or 25,
            username=self._url.username,
            password=self._url.password,
            start_tls=False if self._url.hostname == "127.0.0.1" else None,
            timeout=10,
        )
        return str(message["Message-ID"])


@asynccontextmanager
async def mail_sink(folder: Path) -> AsyncIterator[str]:
    """An SMTP server that delivers everything into the Maildir *folder*; gives its URL."""
    # Of the embedded servers: an image that only sends has no use for it.
    from aiosmtpd.handlers import Mailbox  # noqa: PLC0415
    from aiosmtpd.smtp import SMTP  # noqa: PLC0415

    handler = Mailbox(folder)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(handler, hostname="localhost", loop=loop), "127.0.0.1", 0)
    try:
        yield f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def letters(folder: Path, to: str | None = None) -> list[EmailMessage]:
    """What lies in the Maildir, the oldest first; only the letters to *to* where that is given."""
    paths = sorted(
        (path for place in ("new", "cur") for path in Path(folder, place).glob("*")),
        key=lambda path: path.stat().st_mtime_ns,
    )
    found = [email.message_from_bytes(path.read_bytes(), policy=email.policy.default) for path in paths]
    return [letter for letter in found if isinstance(letter, EmailMessage) and to in (None, letter["To"])]
