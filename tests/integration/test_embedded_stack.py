"""`takeback serve` as a whole lives on its data folder, ends cleanly, and leaves nothing behind when it is killed."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import nats
import psutil
import pytest
import pytest_asyncio

from tests.integration import stub_stack
from tests.processes import TakebackProcess
from tests.waiting import eventually


def serve(data: Path, *arguments: str, **environ: str) -> TakebackProcess:
    return TakebackProcess(
        "serve", "--data", str(data), "--port", "0", *arguments, module=stub_stack.__name__, environ=environ
    )


async def starts(url: str) -> int:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"{url}/v1/starts")).raise_for_status().json()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_services_then_servers_and_the_exit_is_clean(tmp_path: Path, how: signal.Signals) -> None:
    """Issue 2, embedded servers. A live stream does not hold it up, and the service still finds PostgreSQL at its stop
    (it would not tell that it stopped otherwise)."""
    async with (
        serve(tmp_path) as stack,
        httpx.AsyncClient(timeout=30) as client,
        client.stream("GET", f"{stack.url}/v1/stream", headers={"Accept": "text/event-stream"}) as stream,
    ):
        children = psutil.Process(stack.pid).children(recursive=True)
        assert {"postgres", "nats-server", "valkey-server"} <= {child.name() for child in children}
        lines = stream.aiter_lines()
        assert await anext(lines) == ": open"
        assert await stack.end(how) == 0, stack.output
        assert [line async for line in lines] == [""]
    assert (tmp_path / "stopped").exists()
    assert not (tmp_path / "urls.json").exists()
    assert not psutil.wait_procs(children, timeout=0)[1]
    assert "Traceback" not in stack.output
    assert "Cancel" not in (tmp_path / "takeback.log").read_text()


async def test_data_survive_a_stop_and_a_kill_and_a_killed_stack_blocks_no_restart(tmp_path: Path) -> None:
    """Issue 2, embedded servers: the third start finds what the two before it wrote, and their children are gone."""
    async with serve(tmp_path) as stack:
        assert await starts(stack.url) == 1
        await stack.end(signal.SIGTERM)
    async with serve(tmp_path) as stack:
        assert await starts(stack.url) == 2
        orphans = psutil.Process(stack.pid).children(recursive=True)
        await stack.end(signal.SIGKILL)
    async with serve(tmp_path) as stack:
        assert await starts(stack.url) == 3
        await eventually(lambda: not any(map(_lives, orphans)))  # each was told to end when its parent died


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[TakebackProcess, Path]]:
    folder = tmp_path_factory.mktemp("running")
    async with serve(folder) as stack:
        yield stack, folder


@pytest.mark.asyncio(loop_scope="module")
async def test_a_second_start_on_the_folder_says_who_holds_it_and_changes_nothing(
    running: tuple[TakebackProcess, Path],
) -> None:
    """Issue 2, embedded servers."""
    first, folder = running
    urls = (folder / "urls.json").read_bytes()
    with pytest.raises(AssertionError, match="ended with 1") as refusal:
        async with serve(folder):
            pass
    said = str(refusal.value)
    assert f"process {first.pid}" in said
    assert first.url in said
    assert "--data" in said
    assert (folder / "urls.json").read_bytes() == urls
    assert await starts(first.url) == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_a_server_that_dies_is_started_again_on_its_port(running: tuple[TakebackProcess, Path]) -> None:
    stack, folder = running
    url = json.loads((folder / "urls.json").read_text())["nats"]
    server = next(child for child in psutil.Process(stack.pid).children() if child.name() == "nats-server")
    server.kill()
    client = await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.05, allow_reconnect=True)
    await client.flush()
    await client.close()
    again = next(child for child in psutil.Process(stack.pid).children() if child.name() == "nats-server")
    assert again.pid != server.pid


async def test_a_url_in_the_environment_replaces_that_server_alone(
    tmp_path: Path, redis_url: str, empty_postgres_url: str
) -> None:
    """Issue 2, embedded servers; contract, settings."""
    async with serve(tmp_path, TAKEBACK_REDIS_URL=redis_url, TAKEBACK_POSTGRES_URL=empty_postgres_url) as stack:
        names = {child.name() for child in psutil.Process(stack.pid).children()}
        assert names == {"nats-server"}
        urls = json.loads((tmp_path / "urls.json").read_text())
        assert urls["redis"] == redis_url
        assert urls["postgres"] == empty_postgres_url
        assert await starts(stack.url) == 1


async def test_a_signal_while_it_starts_leaves_nothing_running(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", stub_stack.__name__, "serve", "--data", str(tmp_path), "--port", "0")
    )
    await eventually((tmp_path / "postgres" / "data.new").exists)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    await eventually(lambda: not _processes_on(tmp_path))  # what was killed needs a moment to be gone


def _processes_on(folder: Path) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or [])]
