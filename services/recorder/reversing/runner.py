"""Runs reversals: takes what is due, steps through it in the plan's order, writes the Reversal Record (G9, G10).

Nobody polls: a decision takes its reversal in its own commit where it can and wakes the runner of its process where it cannot,
a word on the bus wakes those of the others, and the sweep finds what a crash left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import asyncpg
import structlog

from recorder.journal import Holds, Journal, JournalUnavailable, NewRecord, Refused, Unit
from recorder.journal.dsse import Signer
from recorder.reversing.queue import ReversalQueue
from recorder.reversing.receipts import record_id, reversal_record
from recorder.reversing.reversal import Reversal
from recorder.reversing.settling import Settling
from recorder.reversing.signing import signed
from recorder.reversing.step import Stepping
from takeback import json
from takeback.tasks import end

log = structlog.get_logger()

_AT_ONCE: Final = 8
"""Reversals that one process runs at the same time."""


class Runner:
    """One process's share of the reversals. *announce* tells the other recorders that there may be something to take."""

    def __init__(
        self,
        queue: ReversalQueue,
        stepping: Stepping,
        settling: Settling,
        journal: Journal,
        signer: Signer,
        announce: Callable[[], Awaitable[None]],
        sweep_seconds: float,
    ) -> None:
        self._queue = queue
        self._stepping = stepping
        self._settling = settling
        self._journal = journal
        self._signer = signer
        self._announce = announce
        self._sweep_seconds = sweep_seconds
        self._due = asyncio.Event()
        self._stopping = False
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._loop: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to take reversals, those that a crash left behind first."""
        self._stopping = False
        self._due.set()
        self._loop = asyncio.create_task(self._take_what_is_due(), name="reversals")

    async def stop(self) -> None:
        """Take no more, finish the steps in hand, and leave what remains of their reversals to the other recorders."""
        self._stopping = True
        await end(self._loop)
        while self._running:
            await asyncio.wait(set(self._running))

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """What goes on from `start` to `stop`."""
        return [] if self._loop is None else [self._loop]

    def wake(self) -> None:
        """Look into the queue now."""
        self._due.set()

    @property
    def has_room(self) -> bool:
        """Whether a reversal that is taken now would begin at once."""
        return self._loop is not None and not self._stopping and not self._slots.locked()

    def begin(self, reversal: Reversal) -> None:
        """Run a reversal that was taken with its decision; where the room went meanwhile, as soon as there is some."""
        self._keep(asyncio.create_task(self._run_in_turn(reversal), name=f"reversal {reversal.id}"))

    async def _run_in_turn(self, reversal: Reversal) -> None:
        async with self._leased(reversal.id):
            await self._slots.acquire()
        try:
            await self._run(reversal)
        finally:
            self._slots.release()

    async def _take_what_is_due(self) -> None:
        swept = -self._sweep_seconds
        clock = asyncio.get_running_loop().time
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._sweep_seconds):
                    await self._due.wait()
            self._due.clear()
            try:
                await self._drain()
                if clock() - swept >= self._sweep_seconds:
                    swept = clock()
                    self._keep(asyncio.create_task(self._settling.sweep(), name="settle doubtful reversals"))
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                log.warning("reversals cannot be taken now; the sweep tries again", error=str(error))

    async def _drain(self) -> None:
        while True:
            if self._slots.locked():
                await self._announce()  # this process has its hands full
            await self._slots.acquire()
            reversal = None
            try:
                reversal = await self._queue.take()
            finally:
                if reversal is None:
                    self._slots.release()
            if reversal is None:
                return
            task = asyncio.create_task(self._run(reversal), name=f"reversal {reversal.id}")
            self._keep(task)
            task.add_done_callback(lambda _: self._slots.release())

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The row keeps its lease until it lapses; then somebody takes the reversal up where the journal says it is.
            log.error("reversal interrupted; it is taken up again", task=task.get_name(), exc_info=error)

    async def _run(self, reversal: Reversal) -> None:
        structlog.contextvars.bind_contextvars(campaign=reversal.campaign, plan=reversal.id)
        try:
            async with self._leased(reversal.id):
                for step in reversal.decided.plan.steps:
                    if step.entry in reversal.done:
                        await self._stepping.remember(reversal, reversal.done[step.entry])
                        continue
                    if self._stopping:
                        await self._queue.give_back(reversal.id)
                        await self._announce()
                        return
                    receipt = await self._stepping.take(reversal, step)
                    reversal.done[step.entry] = receipt
                    log.info("step", entry=step.entry, outcome=receipt.outcome, detail=receipt.detail)
                await self._complete(reversal)
        except JournalUnavailable as error:
            log.warning("the journal is away in the middle of a reversal; it is taken up again", error=str(error))
        self.wake()
        await self._announce()

    async def _complete(self, reversal: Reversal) -> None:
        receipts = [reversal.done[step.entry] for step in reversal.decided.plan.steps]
        record = signed(
            reversal_record(reversal.decided, reversal.campaign, receipts, reversal.authorities, reversal.now),
            self._signer,
        )
        new = NewRecord(
            stream=reversal.campaign,
            campaign=reversal.campaign,
            kind="campaign",
            id=record_id("rvc", reversal.id),
            type="reversal.completed",
            body=json.dumps({"plan": reversal.id, "campaign": reversal.campaign, "record": record.wire()}),
            published=True,
        )
        holds = Holds(reversal.campaign, owner=reversal.id, released=True)
        try:
            async with self._journal.transaction() as tx:
                await tx.append(Unit(records=[new], holds=holds, once=new.id))
                await self._queue.finish(tx, reversal.id, {receipt.entry: receipt.outcome for receipt in receipts})
        except Refused as refused:
            if refused.reason != "duplicate-record":
                raise

    @contextlib.asynccontextmanager
    async def _leased(self, reversal: str) -> AsyncIterator[None]:
        lease = asyncio.create_task(self._keep_lease(reversal))
        try:
            yield
        finally:
            lease.cancel()

    async def _keep_lease(self, reversal: str) -> None:
        while True:
            await asyncio.sleep(self._queue.lease_seconds / 3)
            try:
                if not await self._queue.renew(reversal):
                    return
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                log.warning("the lease of a reversal could not be renewed", plan=reversal, error=str(error))
