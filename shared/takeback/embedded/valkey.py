"""Valkey (Redis) as a child process. It only queues: nothing in it is worth keeping, so it keeps nothing."""

import signal
from pathlib import Path
from typing import Self

from takeback.embedded.binaries import valkey_server
from takeback.embedded.process import ServerProcess, listens, on_free_port


class EmbeddedValkey:
    """One valkey-server with its log under `folder`, on 127.0.0.1 only, without persistence.

    It may be started again after a stop, on the same port, and is empty then. Raises ServerNotFound, ServerDidNotStart.
    """

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.folder = folder.resolve()
        self._port = port
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.running

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start it, empty, and return once it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = await on_free_port(self._port, self._start_on)

    async def stop(self) -> None:
        """Stop it. Harmless when it is not running."""
        if self._process is not None:
            await self._process.stop()

    async def kill(self) -> None:
        """End it as a crash would."""
        await self._running().stop(signal.SIGKILL)

    async def _start_on(self, port: int) -> None:
        self._process = ServerProcess(
            [
                valkey_server(),
                *("--port", str(port), "--bind", "127.0.0.1", "--dir", self.folder),
                *("--save", "", "--appendonly", "no", "--databases", "256"),
            ],
            log=self.folder / "valkey.log",
        )
        self._process.spawn()
        await self._process.wait_until(lambda: listens(port, say=b"PING\r\n", greeting=b"+PONG"))

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise RuntimeError("valkey-server has not been started")
        return self._process
