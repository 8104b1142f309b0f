"""Background tasks end when they are told to."""

from __future__ import annotations

import asyncio

from takeback.tasks import end


async def _deaf_once(waiting: asyncio.Event) -> None:
    """Swallows its first cancellation, as a library may that waits in its place, and then loops on."""
    swallowed = False
    while True:
        try:
            waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if swallowed:
                raise
            swallowed = True


async def _fails() -> None:
    raise RuntimeError("it had failed before")


async def test_a_task_whose_cancellation_was_swallowed_is_ended_all_the_same() -> None:
    """A service that is told to stop stops, whatever its loops were waiting for."""
    waiting = asyncio.Event()
    task = asyncio.create_task(_deaf_once(waiting))
    await waiting.wait()
    async with asyncio.timeout(10):
        await end(task)
    assert task.cancelled()


async def test_one_that_had_failed_does_not_keep_the_others_from_ending() -> None:
    failed, other = asyncio.create_task(_fails()), asyncio.create_task(asyncio.Event().wait())
    await asyncio.wait([failed])
    await end(None, failed, other)
    assert other.cancelled()
