"""One running Takeback with both examples for all stories: `takeback serve` on a folder of its own, as a visitor starts it."""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.demo.stage import Stage
from takeback.data_folder import DataFolder
from takeback.example import Installation
from tests.servers import Databases

START_SECONDS = 90


@contextmanager
def running_installation(databases: Databases, folder: Path) -> Iterator[Installation]:
    """A stack in a process of its own on *folder*; its PostgreSQL is the tests' own, already migrated."""
    data = DataFolder(folder / "data")
    command = [sys.executable, "-m", "takeback", "serve", "--data", str(data.path), "--port", "0"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TAKEBACK_")}
    environ["TAKEBACK_POSTGRES_URL"] = database = databases.create()
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            _wait_until_ready(server, data)
            urls = data.urls()
            assert urls is not None
            yield Installation(data, urls, {})
        finally:
            server.terminate()
            server.communicate(timeout=30)
            databases.drop(database)


@pytest.fixture(scope="session")
def installation(migrated_databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The stack, running until the last story has been played."""
    with running_installation(migrated_databases, tmp_path_factory.mktemp("stories")) as installation:
        yield installation


@pytest.fixture
async def stage(installation: Installation) -> AsyncIterator[Stage]:
    """Seats at the running stack for one test."""
    async with Stage(installation) as stage:
        yield stage


def _wait_until_ready(server: subprocess.Popen[str], folder: DataFolder) -> None:
    until = time.monotonic() + START_SECONDS
    while folder.urls() is None:
        if server.poll() is not None or time.monotonic() > until:
            server.kill()
            said, _ = server.communicate()
            log = folder.path / "takeback.log"
            pytest.fail(f"takeback serve did not start:\n{said}\n{_tail(log)}")
        time.sleep(0.02)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text().splitlines()[-20:]) if log.exists() else ""
