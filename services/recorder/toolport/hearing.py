"""What the caller of a tool wants to hear while the tool runs, and the caller's wish that it stop.

It follows a call as context, through whatever stands between a door and a transport: only a transport that can tell of
progress, or pass on a cancellation, looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol, runtime_checkable

from anyio import CancelScope

Kind = Literal["tools", "resources", "prompts"]
"""What an MCP server lists, and tells changes of."""


class Progress(Protocol):
    """Told by the tool: how far it is, of how much, in its words."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class Hearing:
    """One caller, for one call. *progress* is None where nobody listens."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress = progress
        self.cancelled = False
        self._asking: CancelScope | None = None

    def cancel(self) -> None:
        """The caller has gone: nothing more is sent for it, and what was sent is cancelled at the tool server.

        The call is concluded all the same; where nobody knows what the tool did, it is in doubt (J7).
        """
        self.cancelled = True
        if self._asking is not None:
            self._asking.cancel()

    @contextmanager
    def asking(self) -> Iterator[CancelScope]:
        """While the block runs, `cancel` ends it; the scope says whether it did."""
        with CancelScope() as scope:
            self._asking = scope
            try:
                yield scope
            finally:
                self._asking = None


hearing: ContextVar[Hearing | None] = ContextVar("hearing", default=None)
"""Set by a door before it hands a call over."""


@contextmanager
def unheard() -> Iterator[None]:
    """Calls made in the block are the recorder's own: its reads before and after a call go on whoever has left."""
    token = hearing.set(None)
    try:
        yield
    finally:
        hearing.reset(token)


@runtime_checkable
class Changing(Protocol):
    """A port whose tool server tells when one of its lists has changed."""

    def changes(self, tell: Callable[[Kind], None]) -> AbstractContextManager[None]:
        """While the block runs, *tell* is called at each change that the server tells of, with what has changed."""
        ...
