"""Receivers of deliveries, real servers of this machine: an SMTP server and an HTTP server that do as they are told."""

import asyncio
import contextlib
import email
import email.policy
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session
from standardwebhooks import Webhook, WebhookVerificationError

from takeback import json

Answer = tuple[int, dict[str, str]]


@dataclass
class Request:
    """A POST as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> Any:
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """Whether the library of Standard Webhooks takes it."""
        try:
            Webhook(secret).verify(self.body, self.headers)
        except WebhookVerificationError:
            return False
        return True


@dataclass
class HookServer:
    """Answers POSTs with what *answers* says for their path, 200 where it says nothing; *hold* is waited for first."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    answers: dict[str, Callable[[Request], Answer]] = field(default_factory=dict)
    holds: dict[str, asyncio.Event] = field(default_factory=dict)

    def at(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator["HookServer"]:
        hooks = cls()
        server = await asyncio.start_server(hooks._serve, "127.0.0.1", 0)
        hooks.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield hooks
        finally:
            for hold in hooks.holds.values():
                hold.set()
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await _read(reader)
                self.requests.append(request)
                if (hold := self.holds.get(request.path)) is not None:
                    await hold.wait()
                answer = self.answers.get(request.path, lambda _: (200, {}))
                status, headers = answer(request)
                lines = [f"HTTP/1.1 {status} Said", "content-length: 0", *(f"{k}: {v}" for k, v in headers.items())]
                writer.write("\r\n".join([*lines, "", ""]).encode())
                await writer.drain()
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(head[0].split(" ")[1], headers, body)


@dataclass
class MailServer:
    """Keeps letters. *answer* is what it says to DATA, or a coroutine to await for it; after *drops* letters were kept the
    connection is cut before the answer. *parting* is waited for before a goodbye is answered.
    """

    url: str = ""
    letters: list[EmailMessage] = field(default_factory=list)
    answers: list[str | Callable[[], Awaitable[str]]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    drops: int = 0
    parting: asyncio.Event | None = None

    def to(self, address: str) -> list[EmailMessage]:
        return [letter for letter in self.letters if letter["To"] == address]

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator["MailServer"]:
        mail = cls()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: SMTP(mail, hostname="localhost", loop=loop), "127.0.0.1", 0)
        mail.url = f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield mail
        finally:
            server.close()

    async def handle_RCPT(  # noqa: N802  aiosmtpd's name
        self, server: SMTP, _: Session, envelope: Envelope, address: str, __: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, _: Session, envelope: Envelope) -> str:  # noqa: N802
        answer = self.answers.pop(0) if self.answers else "250 OK"
        said = answer if isinstance(answer, str) else await answer()
        if said.startswith("250"):
            content = envelope.content
            assert isinstance(content, bytes)
            letter = email.message_from_bytes(content, policy=email.policy.default)
            assert isinstance(letter, EmailMessage)
            self.letters.append(letter)
        if self.drops:
            self.drops -= 1
            assert server.transport is not None
            server.transport.abort()
        return said

    async def handle_QUIT(self, server: SMTP, _: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.parting is not None:
            await self.parting.wait()
        return "221 Bye"


def text_of(letter: EmailMessage, kind: str = "plain") -> str:
    """The part of *letter* that is text/*kind*."""
    part = letter.get_body((kind,))
    assert part is not None
    content = part.get_content()
    assert isinstance(content, str)
    return content


def subject_of(letter: EmailMessage) -> str:
    """The subject without the blank of a folded line, which Python's parser leaves."""
    return str(letter["Subject"]).strip()
