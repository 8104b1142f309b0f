"""Background tasks: ending them, whatever they were waiting for, and noticing those that ended by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog

from takeback.errors import words_of

log = structlog.get_logger()
_AGAIN_SECONDS = 1.0


def ended(tasks: Iterable[asyncio.Task[Any]]) -> dict[str, str]:
    """Those of *tasks* that go on no more, by name, with why: for readiness, where all of them were to go on for ever."""
    return {task.get_name(): _why(task) for task in tasks if task.done()}


def _why(task: asyncio.Task[Any]) -> str:
    if task.cancelled():
        return "it was cancelled"
    error = task.exception()
    return "it returned" if error is None else f"it failed: {words_of(error)}"


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel *tasks* and return once every one is done; None stands for one that was never begun.

    A library may swallow a cancellation that arrives together with what it waited for (`asyncio.wait_for` up to Python 3.11
    does), and a task that loops then goes on: it is cancelled again every second. A task that had failed is logged, so that
    the others are still ended.
    """
    begun = [task for task in tasks if task is not None]
    pending = {task for task in begun if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_SECONDS)
    for task in begun:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task had failed", task=task.get_name(), exc_info=error)
