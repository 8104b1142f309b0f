"""Valkey (Redis) as a child process. It only queues: nothing in it is worth keeping, so it keeps nothing."""

import secrets
from pathlib import Path

from takeback.embedded.binaries import valkey_server
from takeback.embedded.process import ServerProcess, listens
from takeback.embedded.server import EmbeddedServer


class EmbeddedValkey(EmbeddedServer):
    """One valkey-server without persistence: empty after every start."""

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        super().__init__(folder, port=port)
        self._password = secrets.token_urlsafe(24)  # anybody on this machine can reach the port

    @property
    def url(self) -> str:
        """Where it listens, with its password."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

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
