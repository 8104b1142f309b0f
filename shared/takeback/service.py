"""What a service is to those that run it: found by entry point, built from the environment, started and stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.applications import Starlette


class Running(Protocol):
    """A built service. `app` answers HTTP; `start` and `stop` open and close everything else it holds."""

    name: str
    app: Starlette

    @property
    def background(self) -> Sequence[asyncio.Task[Any]]:
        """The tasks that go on for as long as the service runs. One that ends before is a defect: see `not_ready`."""

    async def start(self) -> None:
        """Connects and begins to consume; raises when a server it needs cannot be reached."""

    async def stop(self) -> None:
        """Finishes what is in hand and lets go of every connection."""

    async def not_ready(self) -> dict[str, str]:
        """What is wrong, by part; empty when the service can do its work (`/readyz`). Names each background task that died."""


@dataclass(frozen=True, slots=True)
class Service:
    """The entry point of group ``takeback.services``: *build* reads its settings from the environment given."""

    name: str
    build: Callable[[Mapping[str, str]], Awaitable[Running]]
