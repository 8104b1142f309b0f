"""Waiting for a reversal to end, woken by its last event: nobody polls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator


class Waiting:
    """Who waits in this process for which plan."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)

    @contextlib.contextmanager
    def for_plan(self, plan: str) -> Iterator[asyncio.Event]:
        """An event that is set once the plan's reversal has ended; enter before the question whether it has."""
        event = asyncio.Event()
        self._waiting[plan].add(event)
        try:
            yield event
        finally:
            self._waiting[plan].discard(event)
            if not self._waiting[plan]:
                del self._waiting[plan]

    def is_waited_for(self, plan: str) -> bool:
        """Whether anybody in this process waits for *plan*."""
        return plan in self._waiting

    def ended(self, plan: str) -> None:
        """Wakes everybody who waits for *plan*."""
        for event in self._waiting.get(plan, ()):
            event.set()
