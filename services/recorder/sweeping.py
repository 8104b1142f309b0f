"""Sweeping: what is due is looked for every few seconds, and at once when this process knows of something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from recorder.answers import JOURNAL_AWAY
from takeback.tasks import end

log = structlog.get_logger()


class Sweep:
    """Runs *work* every *seconds*, and whenever it is woken; a round that fails is logged and the next one comes."""

    def __init__(self, name: str, work: Callable[[], Awaitable[object]], seconds: float) -> None:
        self._name = name
        self._work = work
        self._seconds = seconds
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Something is due: do not wait for the next round."""
        self._woken.set()

    async def start(self) -> None:
        """Begins, with a first round at once."""
        self._task = asyncio.create_task(self._run(), name=f"sweep {self._name}")

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """What goes on from `start` to `stop`."""
        return [] if self._task is None else [self._task]

    async def stop(self) -> None:
        """Ends between two rounds, or in the middle of one: every round may be cut short."""
        await end(self._task)

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._work()
            except JOURNAL_AWAY as error:
                log.warning("a sweep waits for the journal", sweep=self._name, error=str(error))
            except Exception:
                log.exception("a sweep failed; the next one tries again", sweep=self._name)
            try:
                async with asyncio.timeout(self._seconds):
                    await self._woken.wait()
            except TimeoutError:
                continue
