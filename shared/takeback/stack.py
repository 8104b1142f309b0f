"""The whole of Takeback in one process: servers, migrations, streams, services, door, examples, in this order.

`takeback serve` runs it; the demo runs it where none is running yet.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.metadata import entry_points
from typing import Self

from takeback import bus
from takeback.data_folder import DataFolder, NothingRuns, Urls
from takeback.database import migrate, service_url
from takeback.door import Door, bind, url_of
from takeback.edge import Edge
from takeback.embedded.servers import NATS, POSTGRES, Servers, ServerUrls
from takeback.example import Example, Guide, Installation
from takeback.keys import database_password
from takeback.logging import configure_logging
from takeback.service import Running, Service

SERVICES = ("recorder", "planner", "notifier")
"""In the order in which they start: the others compare their heads with the recorder's."""


class NotInstalled(Exception):
    """No service of this name is installed. Nothing was started."""


def find_services() -> list[Service]:
    """The services that are installed, by entry point `takeback.services`, in the order in which they start."""
    return [find_service(name) for name in SERVICES]


def find_service(name: str) -> Service:
    """The service of that name. Raises NotInstalled."""
    for point in entry_points(group="takeback.services", name=name):
        service: Service = point.load()
        return service
    raise NotInstalled(f"There is no service {name!r}. Nothing was started. Choose one of: {', '.join(SERVICES)}.")


def find_examples() -> list[Example]:
    """The examples that are installed, by entry point `takeback.examples`."""
    return [point.load() for point in entry_points(group="takeback.examples")]


class Stack:
    """An embedded stack on one data folder, running while the context is open. It holds the folder all that time.

    Raises FolderInUse, PortInUse, EmbeddedServerError, StreamConflict on entering; nothing is left running then.
    """

    def __init__(
        self,
        folder: DataFolder,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        environ: Mapping[str, str] = os.environ,
        services: Sequence[Service] | None = None,
        examples: Sequence[Example] | None = None,
    ) -> None:
        self._folder = folder
        self._host, self._port = host, port
        self._environ = environ
        self._services = services
        self._examples = examples
        self._exit = AsyncExitStack()
        self.guides: list[Guide] = []
        self.background: Sequence[asyncio.Task[None]] = ()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def failed(self) -> Exception:
        """Wait until an embedded server has ended and could not be started again; answers why."""
        assert self._servers.failed is not None
        return await asyncio.shield(self._servers.failed)

    async def _start(self) -> None:
        self._exit.enter_context(self._folder.held())
        bound = self._exit.enter_context(bind(self._host, self._port))
        self._folder.prepare()
        self._servers = Servers(self._folder.path, self._environ)
        self._exit.push_async_callback(self._servers.stop)
        servers = await self._servers.start()
        services = find_services() if self._services is None else self._services
        environ = self._settings(servers, services, url_of(bound))
        await migrate(servers.postgres, environ)
        await provision(servers.nats)
        # Left after the services, which hold connections to the examples' tool servers and may have calls in hand there.
        examples = await self._exit.enter_async_context(AsyncExitStack())
        running = await start_services(services, lambda name: _as_role_of(name, environ), self._exit)
        self.background = [task for service in running for task in service.background]
        door = await self._exit.enter_async_context(Door(Edge(running), bound))
        urls = Urls(door.url, servers.nats_subscriber, servers.nats_tools, servers.postgres, servers.redis)
        self.installation = Installation(self._folder, urls, environ)
        for example in find_examples() if self._examples is None else self._examples:
            self.guides.append(await examples.enter_async_context(example(self.installation)))
        self._folder.write_urls(urls, environ)
        self._exit.callback(self._folder.forget_urls)

    def _settings(self, servers: ServerUrls, services: Sequence[Service], url: str) -> dict[str, str]:
        passwords = {
            f"TAKEBACK_{service.name.upper()}_PASSWORD": database_password(self._folder.keys, service.name)
            for service in services
        }
        return {
            "TAKEBACK_ALLOW_COMMANDS": "1",
            "TAKEBACK_HTTP_ALLOW_PRIVATE": "1",
            "TAKEBACK_PUBLIC_URL": url,
            "TAKEBACK_SECRET_EXAMPLES": secrets.token_urlsafe(24),
            **passwords,
            **{name: value for name, value in self._environ.items() if name.startswith("TAKEBACK_")},
            **servers.environ(),
            "TAKEBACK_KEYS_DIR": str(self._folder.keys),
        }


@asynccontextmanager
async def one_service(
    name: str, *, host: str, port: int | None, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[tuple[Door, Running]]:
    """Service *name* alone, and the door to it at its own port; its servers and keys are as *environ* says.

    Raises NothingRuns when a server's URL is missing, NotInstalled for a service that is not installed.
    """
    if missing := [variable for variable in (POSTGRES, NATS) if not environ.get(variable)]:
        raise NothingRuns(
            f"{' and '.join(missing)} must say where the servers are when one service runs alone. Nothing was started. "
            "Set them, or run all three with embedded servers: takeback serve"
        )
    async with AsyncExitStack() as stack:
        bound = stack.enter_context(bind(host, port))
        [running] = await start_services([find_service(name)], lambda _: environ, stack)
        yield await stack.enter_async_context(Door(Edge([running]), bound)), running


async def start_services(
    services: Sequence[Service], environ: Callable[[str], Mapping[str, str]], until: AsyncExitStack
) -> list[Running]:
    """Build and start *services* one after the other, each in its own *environ*; *until* stops them, the last one first."""
    running = []
    for service in services:
        built = await service.build(environ(service.name))
        until.push_async_callback(built.stop)
        await built.start()
        running.append(built)
    return running


def _as_role_of(service: str, environ: Mapping[str, str]) -> dict[str, str]:
    return {**environ, POSTGRES: service_url(environ[POSTGRES], service, environ)}


async def provision(nats_url: str) -> None:
    """Bring JetStream's streams to what `deploy/streams/` says."""
    client = await bus.connect(nats_url, "takeback provision")
    try:
        await bus.provision_streams(client.jetstream())
    finally:
        await client.close()


@contextmanager
def logging_to(folder: DataFolder) -> Iterator[None]:
    """Write the log to the folder's `takeback.log`: the terminal is for what a person reads."""
    folder.path.mkdir(mode=0o711, parents=True, exist_ok=True)
    path = folder.path / "takeback.log"
    path.touch(mode=0o600)
    with path.open("a", buffering=1) as log:
        configure_logging("takeback", stream=log)
        yield


@asynccontextmanager
async def reach(folder: DataFolder) -> AsyncIterator[Installation]:
    """The stack that runs on *folder*; where none runs, one that is started for as long as the context is open."""
    if (urls := folder.urls()) is not None:
        yield Installation(folder, urls, folder.environ())
        return
    with logging_to(folder):
        async with Stack(folder) as stack:
            yield stack.installation
