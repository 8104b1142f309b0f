"""nats-server with JetStream as a child process, its streams in a folder, three users."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from takeback.embedded.binaries import nats_server
from takeback.embedded.predecessor import HAS_PROCFS, wait_until_gone
from takeback.embedded.process import ServerProcess, listens
from takeback.embedded.server import EmbeddedServer

# `services` may do everything. `subscriber` is for other systems: it hears what happened and says nothing.
# `tools` is for tool servers on the bus: it serves requests below `tools.` and answers them, and nothing else.
PERMISSIONS: Mapping[str, Mapping[str, Any] | None] = {
    "services": None,
    "subscriber": {"publish": {"deny": ">"}, "subscribe": {"allow": ["takeback.>"]}},
    "tools": {"subscribe": {"allow": ["tools.>"]}, "allow_responses": {"max": 1, "expires": "10m"}},
}


class EmbeddedNats(EmbeddedServer):
    """One nats-server with its streams in `jetstream/` and its users' passwords in `passwords.json`.

    `url` is the services' own, `subscriber_url` and `tools_url` carry the restricted users.
    """

    @property
    def url(self) -> str:
        """For the services: may do everything."""
        return self._url_of("services")

    @property
    def subscriber_url(self) -> str:
        """For other systems: may subscribe to `takeback.>` and nothing else."""
        return self._url_of("subscriber")

    @property
    def tools_url(self) -> str:
        """For tool servers on the bus: serves `tools.>`."""
        return self._url_of("tools")

    async def _start_on(self, port: int) -> None:
        self._config.touch(mode=0o600)
        self._config.write_text(json.dumps(configuration(port, self.folder / "jetstream", self._passwords()), indent=2))
        self._process = ServerProcess([nats_server(), "-c", self._config], log=self.folder / "nats.log")
        self._process.spawn()
        (self.folder / "pid").write_text(str(self._process.pid))
        await self._process.wait_until(lambda: listens(port, greeting=b"INFO "))

    async def _prepare(self) -> None:
        pid = self.folder / "pid"
        if pid.exists() and HAS_PROCFS:
            await wait_until_gone("nats-server", int(pid.read_text() or 0), self._config)

    @property
    def _config(self) -> Path:
        return self.folder / "nats.conf"

    def _url_of(self, user: str) -> str:
        return f"nats://{user}:{self._passwords()[user]}@127.0.0.1:{self.port}"

    def _passwords(self) -> dict[str, str]:
        kept = self.folder / "passwords.json"
        if not kept.exists():
            kept.touch(mode=0o600)
            kept.write_text(json.dumps({user: secrets.token_urlsafe(24) for user in PERMISSIONS}, indent=2))
        passwords: dict[str, str] = json.loads(kept.read_text())
        return passwords


def configuration(port: int, store: Path, passwords: Mapping[str, str]) -> dict[str, Any]:
    """What nats-server reads (its configuration language takes JSON)."""
    return {
        "host": "127.0.0.1",
        "port": port,
        "server_name": "takeback",
        "max_payload": 8 * 1024 * 1024,
        "jetstream": {"store_dir": str(store), "max_file_store": 50 * 1024**3, "max_memory_store": 256 * 1024**2},
        "authorization": {
            "users": [
                {"user": user, "password": passwords[user], **({"permissions": allowed} if allowed else {})}
                for user, allowed in PERMISSIONS.items()
            ]
        },
    }
