"""Delivers what is due, for ever: every receiver in a task of its own, so that a slow one delays nobody else (N7)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from functools import partial

import asyncpg
import structlog
from prometheus_client import Counter, Gauge

from notifier.deliveries import backoff
from notifier.deliveries.chat import ChatSender
from notifier.deliveries.facts import Facts
from notifier.deliveries.ledger import Lane, LeaseLapsed, Ledger, Parcel
from notifier.deliveries.mail import MailSender
from notifier.deliveries.targets import Targets
from notifier.deliveries.verdict import Verdict
from notifier.deliveries.webhooks import WebhookSender
from takeback.errors import words_of
from takeback.tasks import end

log = structlog.get_logger()
ATTEMPTS = Counter("takeback_deliveries_total", "Attempts to deliver by channel and outcome", ["channel", "outcome"])
WAITING = Gauge("takeback_deliveries_waiting", "Deliveries that nobody has taken over yet", ["channel"])
OLDEST = Gauge("takeback_deliveries_oldest_seconds", "Age of the oldest delivery that still waits", ["channel"])
_CHANNELS = ("email", "webhook", "chat")
_MAILS = 8
"""How many letters go to the mail server at the same time."""
_MEASURED_EVERY_SECONDS = 5.0
_GRACE_SECONDS = 5.0
_BREATH_SECONDS = 0.02
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class Worker:
    """Takes parcels from the ledger and hands them to the senders. What waits is looked for every *poll_seconds*."""

    def __init__(
        self,
        ledger: Ledger,
        targets: Targets,
        facts: Facts,
        mail: MailSender,
        webhooks: WebhookSender,
        chat: ChatSender,
        waits: Sequence[float],
        console: str,
        poll_seconds: float,
    ) -> None:
        self._ledger, self._targets, self._facts = ledger, targets, facts
        self._mail, self._webhooks, self._chat = mail, webhooks, chat
        self._waits = waits
        self._console = console
        self._poll_seconds = poll_seconds
        self._woken = asyncio.Event()
        self._lanes: dict[Lane, asyncio.Task[None]] = {}
        self._measured = 0.0

    def wake(self) -> None:
        """Something may be due."""
        self._woken.set()

    async def run(self) -> None:
        """For ever; when cancelled, what is being sent gets a moment to end."""
        try:
            while True:
                try:
                    taken = await self._hand_out()
                    await self._wait(idle=not taken)
                except _LOST as error:
                    log.warning("deliveries wait for the database", error=words_of(error))
                    await asyncio.sleep(1)
        finally:
            if self._lanes:
                _, late = await asyncio.wait(self._lanes.values(), timeout=_GRACE_SECONDS)
                await end(*late)  # its lease lapses, and somebody tries again under the same id

    async def _hand_out(self) -> int:
        """Takes what is due and starts to send it; answers how many receivers get something."""
        self._woken.clear()
        mails = _MAILS - sum(lane[0] == "email" for lane in self._lanes)
        lanes: dict[Lane, list[Parcel]] = {}
        for parcel in await self._ledger.take(list(self._lanes), mails):
            lanes.setdefault(parcel.lane, []).append(parcel)
        for lane, parcels in lanes.items():
            self._lanes[lane] = task = asyncio.create_task(self._serve(parcels))
            task.add_done_callback(partial(self._free, lane))
        return len(lanes)

    def _free(self, lane: Lane, _: asyncio.Task[None]) -> None:
        del self._lanes[lane]
        self.wake()

    async def _wait(self, *, idle: bool) -> None:
        """Until something is due that can be handed out, or somebody wakes the worker.

        *idle*: what was due just now was somebody else's to take, so it is not asked for at once again.
        """
        while not self._woken.is_set():
            full = sum(lane[0] == "email" for lane in self._lanes) >= _MAILS
            due = None if full else await self._ledger.next_due_seconds(list(self._lanes))
            if due == 0 and not idle:
                return
            idle, due = False, max(due, _BREATH_SECONDS) if due is not None else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_seconds if due is None else min(due, self._poll_seconds)):
                    await self._woken.wait()
            await self._measure()

    async def _serve(self, parcels: list[Parcel]) -> None:
        await asyncio.gather(*map(self._deliver, parcels))

    async def _deliver(self, parcel: Parcel) -> None:
        try:
            verdict = await self._send(parcel)
            await self._keep(parcel, verdict)
        except (*_LOST, LeaseLapsed) as error:
            # Nothing is marked: the lease lapses, and somebody tries again under the same id.
            log.warning("a delivery is left to its lease", delivery=parcel.id, error=words_of(error))
        except Exception:
            log.exception("a delivery is defect", delivery=parcel.id, type=parcel.deliveries[0].type)
            await self._ledger.give_up(parcel, "dead", "it cannot be put into words: see the notifier's log")
            ATTEMPTS.labels(parcel.lane[0], "dead").inc()

    async def _send(self, parcel: Parcel) -> Verdict:
        channel, campaign, name = parcel.lane
        if channel == "email":
            news = [await self._facts.news(delivery) for delivery in parcel.deliveries]
            address, called = await self._facts.address(campaign, name), await self._facts.name(campaign)
            now = await self._facts.now()
            parcel.still_mine()
            return await self._mail.send(parcel, address, called, news, now)
        target = await self._targets.find(campaign, name)
        if target is None or target.disabled is not None:
            return Verdict("dead", (target and target.disabled) or "the webhook was removed")
        if channel == "webhook":
            parcel.still_mine()
            return await self._webhooks.send(parcel, target)
        told, called = await self._facts.news(parcel.deliveries[0]), await self._facts.name(campaign)
        now = await self._facts.now()
        parcel.still_mine()
        return await self._chat.send(parcel, target.url, self._console, called, told, now)

    async def _keep(self, parcel: Parcel, verdict: Verdict) -> None:
        outcome = verdict.outcome
        match outcome:
            case "accepted":
                await self._ledger.accepted(parcel)
            case "retry":
                wait = backoff.next_wait(self._waits, parcel.attempts, random.random(), verdict.after_seconds)  # noqa: S311  a pause, no secret
                if wait is None:
                    outcome = "dead"
                    await self._ledger.give_up(parcel, "dead", f"{verdict.reason}; tried {parcel.attempts} times")
                else:
                    await self._ledger.retry(parcel, verdict.reason, wait)
            case "gone":
                # With everything that waits for it: whoever sees the dead letter finds the webhook off.
                await self._targets.disable(parcel.lane[1], parcel.lane[2], verdict.reason)
            case "dead" | "not_configured":
                await self._ledger.give_up(parcel, outcome, verdict.reason)
        ATTEMPTS.labels(parcel.lane[0], outcome).inc()
        log.info(
            "delivery", delivery=parcel.id, campaign=parcel.lane[1], channel=parcel.lane[0], outcome=outcome,
            attempts=parcel.attempts, reason=verdict.reason or None,
        )  # fmt: skip

    async def _measure(self) -> None:
        if time.monotonic() - self._measured < _MEASURED_EVERY_SECONDS:
            return
        self._measured = time.monotonic()
        waiting = await self._ledger.waiting()
        for channel in _CHANNELS:
            count, age = waiting.get(channel, (0, 0.0))
            WAITING.labels(channel).set(count)
            OLDEST.labels(channel).set(age)
