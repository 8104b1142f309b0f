"""Valkey (Redis) as a child process. It only queues: nothing in it is worth keeping, so it keeps nothing."""

import secrets
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
        self._password = secrets.token_urlsafe(24)  # anybody on this machine can reach the port
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

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
        config = self.folder / "valkey.conf"
        config.touch(mode=0o600)
        config.write_text(
            f'port {port}\nbind 127.0.0.1\nrequirepass {self._password}\ndir "{self.folder}"\n'
            'save ""\nappendonly no\ndatabases 256\n'
        )
        self._process = ServerProcess([valkey_server(), config], log=self.folder / "valkey.log")
        self._process.spawn()
        await self._process.wait_until(
            lambda: listens(port, say=f"AUTH {self._password}\r\n".encode(), greeting=b"+OK")
        )

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise RuntimeError("valkey-server has not been started")
        return self._process
