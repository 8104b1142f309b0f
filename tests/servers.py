"""The real servers that tests run against: one PostgreSQL and one Valkey for the run, a nats-server for each test.

Two backends give the same thing: child processes (the default, nothing to install), and containers where
TAKEBACK_TEST_BACKEND=containers is set and a Docker engine can be reached.
"""

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg
import psutil

from takeback.database import migrate
from takeback.embedded import EmbeddedNats, EmbeddedPostgres, EmbeddedValkey
from tests.ports import own_port

# A crash of the machine is not among the things that tests do: no fsync. A crash of PostgreSQL itself is, and loses
# nothing with these settings.
TEST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_init_zero": "off",
    "min_wal_size": "80MB",
    "max_wal_size": "256MB",
    "shared_buffers": "128MB",
    "max_connections": "400",
    "autovacuum_naptime": "10min",
    "log_min_messages": "warning",
}


_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 << 30


@contextmanager
def quick_folder(otherwise: Path) -> Iterator[Path]:
    """A folder in memory where there is plenty, else *otherwise*: a database is four hundred files, and every test has one."""
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        yield otherwise
        return
    for left in _MEMORY.glob("takeback-tests-*"):  # by a run that was killed
        if not psutil.pid_exists(int(left.name.split("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"takeback-tests-{os.getpid()}-", dir=_MEMORY) as folder:
        yield Path(folder)


class Server(Protocol):
    """A server that a fault test may stop, kill and start again on the same port."""

    @property
    def url(self) -> str: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def kill(self) -> None: ...


class NatsServer(Server, Protocol):
    """NATS with its three users; `forget_streams` deletes all JetStream data of a stopped one."""

    @property
    def subscriber_url(self) -> str: ...
    @property
    def tools_url(self) -> str: ...
    def forget_streams(self) -> None: ...


class Backend(Protocol):
    """Makes servers. Each gets a folder of its own, and is started by the caller."""

    def postgres(self, folder: Path) -> Server: ...
    def nats(self, folder: Path) -> NatsServer: ...
    def valkey(self, folder: Path) -> Server: ...


class _ForgetfulNats(EmbeddedNats):
    """An embedded one that can lose what it holds."""

    def forget_streams(self) -> None:
        shutil.rmtree(self.folder / "jetstream")


class Processes:
    """Servers as child processes, from the wheels or PATH."""

    def postgres(self, folder: Path) -> Server:
        return EmbeddedPostgres(folder, port=own_port(), settings=TEST_SETTINGS, trust=True)

    def nats(self, folder: Path) -> NatsServer:
        return _ForgetfulNats(folder, port=own_port())

    def valkey(self, folder: Path) -> Server:
        return EmbeddedValkey(folder, port=own_port())


def backend() -> Backend:
    """The backend that TAKEBACK_TEST_BACKEND asks for (`processes` or `containers`)."""
    match os.environ.get("TAKEBACK_TEST_BACKEND", "processes"):
        case "processes":
            return Processes()
        case "containers":
            from tests.containers import Containers  # noqa: PLC0415  testcontainers only where it is used

            return Containers()
        case other:
            raise ValueError(f"TAKEBACK_TEST_BACKEND is {other!r}; use 'processes' or 'containers'")


class Databases:
    """Fresh databases on one PostgreSQL, each a copy of a template in which all migrations have been run once."""

    TEMPLATE = "takeback_template"

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._numbers = itertools.count(1)

    def url_of(self, name: str) -> str:
        return urlsplit(self._server_url)._replace(path=f"/{name}").geturl()

    def make_template(self) -> None:
        """Create the template and migrate it."""
        self._execute(f"CREATE DATABASE {self.TEMPLATE}")
        url = self.url_of(self.TEMPLATE)

        async def run() -> None:
            await migrate(url)

        in_own_loop(run)

    def create(self, *, empty: bool = False) -> str:
        """A new database's URL: migrated, or `empty`."""
        name = f"takeback_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {'template0' if empty else self.TEMPLATE} STRATEGY FILE_COPY")
        return self.url_of(name)

    def drop(self, url: str) -> None:
        """Drop it, whoever is still connected."""
        self._execute(f"DROP DATABASE {urlsplit(url).path[1:]} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        async def run() -> None:
            connection = await asyncpg.connect(self._server_url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        in_own_loop(run)


def in_own_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` in a loop of its own, for fixtures that outlive a test's loop."""
    asyncio.run(work())
