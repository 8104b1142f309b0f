"""`takeback serve` as a process of its own, for tests that kill it or look at its exit."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Self

_READY = re.compile(r"ready at (http://\S+)")


class TakebackProcess:
    """`python -m MODULE serve …`, started and waited for. `url` is where it answers, `output` what it said so far.

    Stopped with SIGTERM at the end of the context, if it still runs. Raises AssertionError with its output when it
    ends before it is ready.
    """

    def __init__(
        self,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        module: str = "takeback",
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        self._command = [*python, "-m", module, *arguments]
        self._environ = {**os.environ, **(environ or {})}
        self.output = ""
        self.url = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        ended = asyncio.create_task(self._process.wait())
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait((ended, ready), return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.is_set():
            await self._reading
        ready.cancel()
        assert self._ready.is_set(), f"it ended with {self._process.returncode} before it was ready:\n{self.output}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end(signal.SIGTERM)

    async def end(self, how: signal.Signals) -> int:
        """Send *how* unless it has ended; answers the exit code, when it has ended."""
        if self._process.returncode is None:
            self._process.send_signal(how)
        code = await self._process.wait()
        await self._reading
        return code

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.output += line.decode()
            if found := _READY.search(self.output):
                self.url = self.url or found.group(1)
                self._ready.set()
