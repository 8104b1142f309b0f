"""Waiting for a condition, where a sleep would be a guess."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

WAIT_SECONDS = 20.0


async def eventually(holds: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """What *holds*() answers (awaited when it is awaitable) once that is truthy; raises TimeoutError after *seconds*."""
    async with asyncio.timeout(seconds):
        while True:
            value = holds()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.005)
