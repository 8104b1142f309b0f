"""Recorders that may be killed: forked from a process that has imported everything once, for imports take seconds each time."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Self

from recorder import failpoints

START_SECONDS = 60.0
"""The first one waits until everything is imported."""
Ready = Callable[[str], None]
Serve = Callable[[Ready], Awaitable[None]]
"""Serves for ever under the environment's settings, once it has said that it is ready, and where."""

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.recorder_lab", "tests.integration.reversals_lab"])


class Forked:
    """*serve* in a process of its own under *environ*, ready; `said` is what it said. Killed at the end, if it still runs."""

    def __init__(self, serve: Serve, environ: Mapping[str, str]) -> None:
        self._here, there = _forks.Pipe(duplex=False)
        environ = {**os.environ, "TAKEBACK_TEST": "1", **environ}
        self._process = _forks.Process(target=_run, args=(serve, environ, there), daemon=True)
        self._there = there

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._process.start)
        self._there.close()
        try:
            async with asyncio.timeout(START_SECONDS):
                self.said: str = await asyncio.to_thread(self._here.recv)
        except BaseException:
            await self.end(signal.SIGKILL)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end(signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL; it need not be there any more."""
        self._process.kill()

    async def ended(self) -> int:
        """How it ended, once it has: minus the signal."""
        await asyncio.to_thread(self._process.join)
        code = self._process.exitcode
        assert code is not None
        return code

    async def end(self, how: signal.Signals) -> int:
        """Send *how*; answers how it ended, once it has."""
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, how)
        return await self.ended()


def _run(serve: Serve, environ: Mapping[str, str], there: Connection[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(environ)
    importlib.reload(failpoints)  # what is armed is read when it is imported
    asyncio.run(serve(there.send))  # type: ignore[arg-type]
