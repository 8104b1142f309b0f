"""The same servers as containers, where a Docker engine can be reached (TAKEBACK_TEST_BACKEND=containers)."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from docker.errors import DockerException  # type: ignore[import-untyped]
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from takeback.embedded.nats import PERMISSIONS, configuration
from tests.ports import own_port
from tests.servers import TEST_SETTINGS

# The images that docker-compose.yml names; a test holds the two against each other.
POSTGRES_IMAGE = "postgres:18-alpine"
NATS_IMAGE = "nats:2.15-alpine"
VALKEY_IMAGE = "valkey/valkey:9-alpine"


class Containers:
    """Servers as containers. Raises RuntimeError where no engine answers."""

    def __init__(self) -> None:
        try:
            DockerContainer(NATS_IMAGE).get_docker_client().client.ping()
        except DockerException as reason:
            raise RuntimeError(
                f"TAKEBACK_TEST_BACKEND=containers, but no Docker engine answers ({reason}). "
                "Start one, or unset the variable."
            ) from reason

    def postgres(self, folder: Path) -> "ContainerPostgres":
        return ContainerPostgres(folder)

    def nats(self, folder: Path) -> "ContainerNats":
        return ContainerNats(folder)

    def valkey(self, folder: Path) -> "ContainerValkey":
        return ContainerValkey(folder)


class _Container:
    """A container on a fixed host port, whose data is in `folder`, so that it can be started again."""

    def __init__(self, folder: Path, image: str, port: int, ready: str, **arguments: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._image, self._inner_port, self._ready, self._arguments = image, port, ready, arguments
        self.port = own_port()
        self._container: DockerContainer | None = None

    async def start(self) -> None:
        container = DockerContainer(self._image, **self._arguments)
        container.with_bind_ports(self._inner_port, self.port)
        container.waiting_for(LogMessageWaitStrategy(self._ready))
        self._container = await asyncio.to_thread(container.start)

    async def stop(self) -> None:
        if self._container is not None:
            await asyncio.to_thread(self._container.stop)
            self._container = None

    async def kill(self) -> None:
        if self._container is not None:
            await asyncio.to_thread(self._container.get_wrapped_container().kill)
        await self.stop()


class ContainerPostgres(_Container):
    """PostgreSQL; its data is a folder of the host."""

    def __init__(self, folder: Path) -> None:
        settings = [word for key, value in TEST_SETTINGS.items() for word in ("-c", f"{key}={value}")]
        super().__init__(
            folder,
            POSTGRES_IMAGE,
            5432,
            "listening on IPv4 address",
            command=settings,
            env={
                "POSTGRES_USER": "takeback",
                "POSTGRES_PASSWORD": "takeback",
                "POSTGRES_DB": "takeback",
                "POSTGRES_HOST_AUTH_METHOD": "trust",
            },
            volumes=[(str(folder), "/var/lib/postgresql", "rw")],
        )

    @property
    def url(self) -> str:
        return f"postgresql://takeback:takeback@127.0.0.1:{self.port}/takeback"


class ContainerNats(_Container):
    """NATS with the same users and permissions as the embedded one."""

    def __init__(self, folder: Path) -> None:
        (folder / "store").mkdir(parents=True)
        inner = configuration(4222, Path("/data/store"), dict.fromkeys(PERMISSIONS, "secret"))
        (folder / "nats.conf").write_text(json.dumps(inner | {"host": "0.0.0.0"}))
        super().__init__(
            folder,
            NATS_IMAGE,
            4222,
            "Server is ready",
            command=["-c", "/data/nats.conf"],
            volumes=[(str(folder), "/data", "rw")],
        )

    @property
    def url(self) -> str:
        return self._url_of("services")

    @property
    def subscriber_url(self) -> str:
        return self._url_of("subscriber")

    @property
    def tools_url(self) -> str:
        return self._url_of("tools")

    def forget_streams(self) -> None:
        shutil.rmtree(self.folder / "store")
        (self.folder / "store").mkdir()

    def _url_of(self, user: str) -> str:
        return f"nats://{user}:secret@127.0.0.1:{self.port}"


class ContainerValkey(_Container):
    """Valkey without persistence."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            VALKEY_IMAGE,
            6379,
            "Ready to accept connections",
            command=["valkey-server", "--save", "", "--appendonly", "no", "--databases", "256"],
        )

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"
