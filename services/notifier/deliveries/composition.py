"""The deliveries put together: ledger, senders, worker, and the doors over them."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
from fastapi import APIRouter

from notifier import outgoing
from notifier.deliveries import backoff, doors
from notifier.deliveries.chat import ChatSender
from notifier.deliveries.facts import Facts
from notifier.deliveries.ledger import Ledger
from notifier.deliveries.mail import MailSender
from notifier.deliveries.office import Office
from notifier.deliveries.targets import Targets
from notifier.deliveries.webhooks import WebhookSender
from notifier.deliveries.worker import Worker
from notifier.idempotency import Idempotency
from notifier.reviews import Reviews
from takeback.auth import Verifier
from takeback.outbound import guarded_client
from takeback.rpc import Rpc


@dataclass(frozen=True, slots=True)
class Terms:
    """How deliveries go out; durations in seconds. *retry_seconds* as `backoff.waits_of` reads it."""

    smtp_url: str
    smtp_from: str
    public_url: str
    retry_seconds: str
    deadline_seconds: float
    retention_seconds: float
    poll_seconds: float
    allow_private: bool


class Deliveries:
    """One notifier's deliveries: run `worker`, include `doors`, trim `ledger`; `close` at the end."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        terms: Terms,
        reviews: Reviews,
        rpc: Rpc,
        idempotency: Idempotency,
        verifier: Verifier,
    ) -> None:
        # A lease outlives its attempt, so that nobody takes what is still under way.
        self.ledger = Ledger(pool, outgoing.accepted, terms.deadline_seconds * 2, terms.retention_seconds)
        targets = Targets(pool)
        self._client = guarded_client(allow_private=terms.allow_private, timeout_seconds=terms.deadline_seconds)
        self._chat = ChatSender(allow_private=terms.allow_private, deadline_seconds=terms.deadline_seconds)
        self.worker = Worker(
            self.ledger,
            targets,
            Facts(pool),
            MailSender(terms.smtp_url, terms.smtp_from, terms.public_url, terms.deadline_seconds),
            WebhookSender(self._client, terms.deadline_seconds),
            self._chat,
            backoff.waits_of(terms.retry_seconds),
            terms.public_url,
            terms.poll_seconds,
        )
        office = Office(pool, reviews, rpc, targets, allow_private=terms.allow_private)
        self.doors: APIRouter = doors.router(office, idempotency, verifier, self.worker.wake)

    async def close(self) -> None:
        """Lets go of the receivers."""
        self._chat.close()
        await self._client.aclose()
