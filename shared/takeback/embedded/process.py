"""One server process: started with its log, waited for until it is ready, stopped, and never left behind.

A child gets its parent's death as a signal (PR_SET_PDEATHSIG), so that a Takeback that is killed outright leaves no
server that would hold the data folder. Linux keeps that setting across `unshare --user` (no privilege is gained by
it) and binds it to the *thread* that started the child: start servers on the event loop's thread, never on a pool's.
Elsewhere than on Linux a killed parent leaves its servers running; the next start then says which process to end.
"""

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from takeback.embedded.errors import ServerDidNotStart

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_POLL_SECONDS = 0.002


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int, *, greeting: bytes, say: bytes = b"") -> bool:
    """Whether a server on 127.0.0.1 takes a connection and greets (after being spoken to) as it should."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(say)
            return connection.recv(64).startswith(greeting)
    except OSError:
        return False


class ServerProcess:
    """A child process with a log file. `on_parent_death` is the signal that it gets when its parent dies."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        name: str | None = None,
        log: Path,
        on_parent_death: signal.Signals = signal.SIGTERM,
        identity: dict[str, Any] | None = None,
    ) -> None:
        self.name = name or Path(command[0]).name
        self._command = [str(word) for word in command]
        self._log = log
        self._death_signal = on_parent_death
        self._identity = identity or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError before the start."""
        return self._started().pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start it. Returns at once: `wait_until` tells when it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at the terminal is for Takeback, which stops its servers last
                preexec_fn=_die_with(os.getpid(), self._death_signal),  # noqa: PLW1509  prctl alone, which takes no lock
                **self._identity,
            )

    async def wait_until(self, ready: Callable[[], bool], *, seconds: float = 20) -> None:
        """Wait until `ready()`. Raises ServerDidNotStart when the process ends first or the time is over."""
        deadline = _Deadline(seconds)
        while not ready():
            if (code := self._started().poll()) is not None:
                raise ServerDidNotStart(self.name, f"ended with code {code} before it was ready", self._log)
            if deadline.over:
                await self.stop(signal.SIGKILL)
                raise ServerDidNotStart(self.name, f"was not ready after {seconds:g} s", self._log)
            await asyncio.sleep(_POLL_SECONDS)

    async def finish(self, *, seconds: float = 60) -> None:
        """Wait until a program that ends by itself has done so. Raises ServerDidNotStart on any code but 0."""
        deadline = _Deadline(seconds)
        try:
            while self._started().poll() is None:
                if deadline.over:
                    raise ServerDidNotStart(self.name, f"had not ended after {seconds:g} s", self._log)
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            if self.running:
                os.killpg(self.pid, signal.SIGKILL)  # with what it has started itself
                await self.stop(signal.SIGKILL)
        if code := self._started().returncode:
            raise ServerDidNotStart(self.name, f"ended with code {code}", self._log)

    async def stop(self, how: signal.Signals = signal.SIGTERM, *, seconds: float = 20) -> None:
        """Send `how` and wait for the end; SIGKILL when it takes longer than `seconds`. Harmless when it has ended."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(how)
        deadline = _Deadline(seconds)
        while self._process.poll() is None:
            if deadline.over:
                self._process.kill()
            await asyncio.sleep(_POLL_SECONDS)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def over(self) -> bool:
        return time.monotonic() > self._end


def _die_with(parent: int, death_signal: signal.Signals) -> Callable[[], None] | None:
    if _LIBC is None:
        return None
    libc = _LIBC

    def in_the_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return in_the_child
