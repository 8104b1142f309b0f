"""Fixtures that hand out real servers. See tests/servers.py for what they are.

`postgres_url`, `nats_url`, `redis_url`: clean ones for each test, milliseconds each.
`start_postgres`, `start_nats`, `start_valkey`: private servers, for tests that kill, restart or empty them.
"""

import contextlib
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import hypothesis
import pytest
import redis

from tests import spreading
from tests.servers import Backend, Databases, NatsServer, Server, backend, in_own_loop, quick_folder

AnyServer = TypeVar("AnyServer", bound=Server)

# Everybody that a test speaks to is on this machine. Hundreds of authorities need not be read for each client.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = os.devnull

# How long an example takes says how busy the machine is, and nothing of what is tried.
hypothesis.settings.register_profile(
    "takeback",
    parent=hypothesis.settings.get_profile(hypothesis.settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
hypothesis.settings.load_profile("takeback")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    items.sort(key=spreading.turn)


def pytest_collection_finish() -> None:
    """What was imported stays until the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> spreading.ByStack:
    """What shares a stack goes to one worker."""
    return spreading.ByStack(config, log)


@pytest.fixture(scope="session")
def servers() -> Backend:
    """Where servers come from: child processes or containers."""
    return backend()


@pytest.fixture(scope="session")
def postgres_server(servers: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The run's PostgreSQL."""
    with quick_folder(tmp_path_factory.mktemp("postgres")) as folder, _running(servers.postgres(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def databases(postgres_server: Server) -> Databases:
    """Fresh databases on the run's PostgreSQL."""
    return Databases(postgres_server.url)


@pytest.fixture(scope="session")
def migrated_databases(databases: Databases) -> Databases:
    """The same, once all services' migrations have been run in the template."""
    databases.make_template()
    return databases


@pytest.fixture
def postgres_url(migrated_databases: Databases) -> Iterator[str]:
    """A database of this test's own, all services' migrations applied, as its owner; any role may log in."""
    url = migrated_databases.create()
    yield url
    migrated_databases.drop(url)


@pytest.fixture
def empty_postgres_url(databases: Databases) -> Iterator[str]:
    """A database of this test's own with nothing in it."""
    url = databases.create(empty=True)
    yield url
    databases.drop(url)


@pytest.fixture(scope="module")
def shared_database(migrated_databases: Databases) -> Iterator[str]:
    """The URL of a database that the tests of a file share, all services' migrations applied."""
    url = migrated_databases.create()
    yield url
    migrated_databases.drop(url)


@pytest.fixture(scope="module")
def empty_shared_database(databases: Databases) -> Iterator[str]:
    """The URL of a database that the tests of a file share, with nothing in it at first."""
    url = databases.create(empty=True)
    yield url
    databases.drop(url)


@pytest.fixture
def nats_server(servers: Backend, tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server with JetStream of this test's own; may be stopped, killed, emptied and started again."""
    server = servers.nats(tmp_path / "nats")
    with _running(server):
        yield server


@pytest.fixture
def nats_url(nats_server: NatsServer) -> str:
    """The services' own user on this test's nats-server."""
    return nats_server.url


@pytest.fixture(scope="session")
def valkey_server(servers: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The run's Valkey."""
    with _running(servers.valkey(tmp_path_factory.mktemp("valkey"))) as server:
        yield server


@pytest.fixture
def redis_url(valkey_server: Server) -> str:
    """The run's Valkey, emptied for this test."""
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
    return valkey_server.url


@pytest.fixture
async def start_postgres(servers: Backend, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[Server]]]:
    """Starts a private, unmigrated PostgreSQL (half a second)."""
    async with _Starter(servers.postgres, tmp_path) as starter:
        yield starter.start


@pytest.fixture
async def start_nats(servers: Backend, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[NatsServer]]]:
    """Starts one more private nats-server."""
    async with _Starter(servers.nats, tmp_path) as starter:
        yield starter.start


@pytest.fixture
async def start_valkey(servers: Backend, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[Server]]]:
    """Starts a private Valkey; it is empty after every start."""
    async with _Starter(servers.valkey, tmp_path) as starter:
        yield starter.start


class _Starter(Generic[AnyServer]):
    """Starts servers of one kind in folders of their own, and stops whatever still runs at the end."""

    def __init__(self, make: Callable[[Path], AnyServer], folder: Path) -> None:
        self._make = make
        self._folder = folder
        self._started: list[AnyServer] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._started:
            await server.stop()

    async def start(self) -> AnyServer:
        server = self._make(self._folder / f"server-{self._make.__name__}-{len(self._started) + 1}")
        self._started.append(server)
        await server.start()
        return server


@contextlib.contextmanager
def _running(server: Server) -> Iterator[Server]:
    in_own_loop(server.start)
    try:
        yield server
    finally:
        in_own_loop(server.stop)
