"""`takeback serve` and `takeback migrate`: run until a signal, tell what a visitor needs, end cleanly."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape

from takeback.bus import StreamConflict
from takeback.data_folder import DataFolder, FolderInUse, NothingRuns
from takeback.database import MigrationFailed
from takeback.database import migrate as migrate_database
from takeback.door import PortInUse
from takeback.embedded import EmbeddedServerError
from takeback.errors import Problem
from takeback.keys import ensure_keys, keys_folder, publish_keys
from takeback.logging import configure_logging
from takeback.stack import NotInstalled, Stack, logging_to, one_service, provision
from takeback.tasks import ended

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ServerLost(Exception):
    """An embedded server ended while it ran and could not be started again."""


class TaskLost(Exception):
    """A background task ended by itself: what it did is done no more, so the process ends and is to be started again."""


TOLD = (
    FolderInUse,
    PortInUse,
    NothingRuns,
    NotInstalled,
    EmbeddedServerError,
    ServerLost,
    TaskLost,
    StreamConflict,
    MigrationFailed,
    Problem,
    ValidationError,
)
"""The errors whose message says what to do: no traceback for these."""


def explain(reason: Exception) -> str:
    """What to tell a person. Settings are named without their values: those are passwords."""
    if not isinstance(reason, ValidationError):
        return str(reason)
    wrong = "; ".join(
        f"TAKEBACK_{'_'.join(map(str, error['loc'])).upper()}: {error['msg']}"
        for error in reason.errors(include_input=False)
    )
    return f"The settings are not as they should be ({wrong}). Nothing was started."


async def serve_stack(data: Path, *, host: str, port: int | None, examples: bool) -> int:
    """Run everything on *data* until SIGINT or SIGTERM; answers the exit code. Its log is the folder's `takeback.log`."""
    folder = DataFolder(data)
    with logging_to(folder):
        stack = Stack(folder, host=host, port=port, examples=None if examples else [])

        async def run(stop: _Stop) -> None:
            async with stack:
                _settle_memory()
                _tell(stack, folder)
                stopping, lost = asyncio.create_task(stop.wait()), asyncio.create_task(stack.failed())
                await asyncio.wait((stopping, lost, *stack.background), return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    raise ServerLost(str(lost.result())) from lost.result()
                lost.cancel()
                check(stack.background)
                print("Stopping; everything stays in", folder.path, flush=True)  # noqa: T201

        return await _until_signal(run)


async def serve_service(name: str, data: Path, *, host: str, port: int | None) -> int:
    """Run one service until SIGINT or SIGTERM; answers the exit code. It logs to standard error."""
    configure_logging(name)
    keys = keys_folder(os.environ, data).resolve()
    if name == "recorder":
        ensure_keys(keys)  # only recorders hold the private ones; the others read the public halves
    environ = {**os.environ, "TAKEBACK_KEYS_DIR": str(keys)}

    async def run(stop: _Stop) -> None:
        async with one_service(name, host=host, port=port, environ=environ) as (door, service):
            _settle_memory()
            print(f"{name} is ready at {door.url}", flush=True)  # noqa: T201
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((stopping, *service.background), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            check(service.background)

    return await _until_signal(run)


async def migrate(data: Path) -> None:
    """Bring schemas, streams and keys to this version, on the servers that the environment or a running stack names.

    TAKEBACK_PUBLIC_KEYS_DIR names one more folder for the public halves: the keys of services that only check tokens.
    """
    environ = DataFolder(data).environ()
    keys = keys_folder(environ, data)
    ensure_keys(keys)
    if public := environ.get("TAKEBACK_PUBLIC_KEYS_DIR"):
        publish_keys(keys, Path(public))
    migrated = await migrate_database(environ["TAKEBACK_POSTGRES_URL"], environ)
    if nats_url := environ.get("TAKEBACK_NATS_URL"):
        await provision(nats_url)
        migrated = [*migrated, "JetStream"]
    print("Up to date:", ", ".join(migrated))  # noqa: T201


def check(background: Iterable[asyncio.Task[Any]]) -> None:
    """Raises `TaskLost` when one of the tasks that were to go on for ever does not."""
    if died := ended(background):
        told = "; ".join(f"{name}: {why}" for name, why in died.items())
        raise TaskLost(
            f"A background task ended by itself ({told}). What was acknowledged is in the journal. This process ends, for it"
            " would go on without that task; start it again."
        )


class _Stop:
    """The first SIGINT or SIGTERM. `awaited` once somebody has started up and waits for it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.awaited = False

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        self.awaited = True
        await self._event.wait()


async def _until_signal(run: Callable[[_Stop], Coroutine[Any, Any, None]]) -> int:
    """Run until the first SIGINT or SIGTERM, which also cancels what is still starting; answers exit code 0.

    The second one does what the system's default is, for whoever cannot wait.
    """
    loop = asyncio.get_running_loop()
    stop = _Stop()
    life = asyncio.create_task(run(stop))

    def on_signal() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        if stop.awaited:
            stop.set()
        else:
            life.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    with contextlib.suppress(asyncio.CancelledError):
        await life
    return 0


def _settle_memory() -> None:
    """What the start has made stays: the collector need not look at it again, and need not look so often."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 50, 100)


def _tell(stack: Stack, folder: DataFolder) -> None:
    urls = stack.installation.urls
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"\n[bold]Takeback is ready at {urls.http}[/bold]")
    _table(
        console,
        {
            "data": str(folder.path),
            "log": str(folder.path / "takeback.log"),
            "events (NATS)": f"{urls.nats}  takeback.>",
            "all addresses": str(folder.path / "urls.json"),
            "a token": "takeback token NAME [--agent | --service]" + _data_option(folder),
            "the stories": "takeback demo" + _data_option(folder),
        },
    )
    for guide in stack.guides:
        console.print(f"\n[bold]{escape(guide.title)}[/bold]")
        _table(console, guide.look)
        _table(console, {f"token of {name}": token for name, token in guide.tokens.items()})
        # Behind the # the token never reaches a server's log; the page takes it out of the address at once.
        _table(
            console, {f"look as {name}": f"{urls.http}/console/sign-in#token={t}" for name, t in guide.tokens.items()}
        )
    console.print("\nCtrl-C stops it; everything stays in the data folder.")
    sys.stdout.flush()


def _table(console: Console, rows: Mapping[str, str]) -> None:
    width = max((len(name) for name in rows), default=0)
    for name, value in rows.items():
        console.print(f"  [dim]{escape(name.ljust(width))}[/dim]  {escape(value)}")


def _data_option(folder: DataFolder) -> str:
    return "" if folder.path == Path("data").resolve() else f" --data {folder.path}"
