"""What every embedded server has in common: a folder, a port, a process, a start that can be repeated."""

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from takeback.embedded.errors import ServerDidNotStart
from takeback.embedded.process import ServerProcess, free_port

_PORTS_TRIED = 5


class EmbeddedServer(ABC):
    """A server on 127.0.0.1 with its data and its log under *folder*.

    Use it as an async context manager, or call `start` and `stop`. It may be started again after a stop or a crash, on
    the same port. `start` raises ServerNotFound, ServerDidNotStart or EmbeddedServerError.
    """

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.folder = folder.resolve()
        self._port = port
        self._process: ServerProcess | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where the services reach it, with their password."""

    @property
    def port(self) -> int:
        """Where it listens. Raises RuntimeError before the first start."""
        if self._port is None:
            raise RuntimeError(f"{type(self).__name__} has not been started")
        return self._port

    @property
    def pid(self) -> int:
        """The server's process id. Raises RuntimeError before the first start."""
        return self._started().pid

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
        """Start it, and return once it answers. A port that another program takes meanwhile is given up for the next."""
        self.folder.mkdir(parents=True, exist_ok=True)
        await self._prepare()
        for tried in range(1, _PORTS_TRIED + 1):
            port = self._port or free_port()
            try:
                await self._start_on(port)
            except ServerDidNotStart as reason:
                if self._port or tried == _PORTS_TRIED or "ddress already in use" not in str(reason):
                    raise
            else:
                self._port = port
                return

    async def stop(self) -> None:
        """Stop it in its own time. Harmless when it is not running."""
        if self._process is not None:
            await self._process.stop(self.stop_signal, seconds=60)

    async def kill(self) -> None:
        """End it as a crash would."""
        await self._started().stop(signal.SIGKILL)

    async def _prepare(self) -> None:  # noqa: B027  not every server has to
        """Make ready what a start needs in the folder."""

    @abstractmethod
    async def _start_on(self, port: int) -> None:
        """Spawn the process, and wait until it answers on *port*."""

    def _started(self) -> ServerProcess:
        if self._process is None:
            raise RuntimeError(f"{type(self).__name__} has not been started")
        return self._process
