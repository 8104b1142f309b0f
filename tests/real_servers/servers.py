"""The servers of the shipped manifests, as somebody would register them. Where one cannot be had, tests skip and say why."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from recorder.manifest import Checked, read_manifest
from tests.node_servers import node_server
from tests.ports import own_port

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
_PYTHON = ROOT / ".venv" / "real-servers" / "bin"
Config = dict[str, Any]


def manifest(name: str) -> str:
    """The shipped manifest, as text."""
    return (MANIFESTS / f"{name}.yaml").read_text(encoding="utf-8")


def checked(name: str) -> Checked:
    """The shipped manifest, read."""
    return read_manifest(manifest(name))


@asynccontextmanager
async def filesystem(folder: Path) -> AsyncIterator[Config]:
    """Files below ``folder/root``."""
    (folder / "root").mkdir(parents=True, exist_ok=True)
    command, arguments = node_server("@modelcontextprotocol/server-filesystem", str(folder / "root"))
    yield {"transport": "mcp", "command": command, "args": arguments}


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[Config]:
    """A knowledge graph in ``folder/memory.jsonl``."""
    command, arguments = node_server("@modelcontextprotocol/server-memory")
    env = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    yield {"transport": "mcp", "command": command, "args": arguments, "env": env}


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Config]:
    """A database in ``folder/lab.db``."""
    arguments = ["--db-path", str(folder / "lab.db")]
    yield {"transport": "mcp", "command": str(_program("mcp-server-sqlite")), "args": arguments}


@asynccontextmanager
async def radicale(folder: Path) -> AsyncIterator[Config]:
    """A calendar of its own on a running Radicale, which keeps it in ``folder/calendars``."""
    _program("radicale")
    url = f"http://127.0.0.1:{own_port()}"
    settings = ["--server-hosts", url.removeprefix("http://"), "--auth-type", "none"]
    settings += ["--storage-filesystem-folder", str(folder / "calendars"), "--logging-level", "error"]
    process = await asyncio.create_subprocess_exec(str(_PYTHON / "python"), "-m", "radicale", *settings)
    try:
        async with httpx.AsyncClient() as http:
            await _answers(http, url, process)
            for method, path in (("MKCOL", "/anna/"), ("MKCALENDAR", "/anna/work/")):
                (await http.request(method, url + path)).raise_for_status()
        yield {"transport": "http", "url": f"{url}/anna/work"}
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


SERVERS: dict[str, Callable[[Path], AbstractAsyncContextManager[Config]]] = {
    "filesystem": filesystem,
    "memory": memory,
    "sqlite": sqlite,
    "radicale": radicale,
}


def _program(name: str) -> Path:
    program = _PYTHON / name
    if not program.exists():
        pytest.skip(f"{name} is not installed; `make .venv/.realservers` does it")
    return program


async def _answers(http: httpx.AsyncClient, url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(30):
        while True:
            assert process.returncode is None, "radicale ended before it answered"
            with contextlib.suppress(httpx.TransportError):
                await http.get(url)
                return
            await asyncio.sleep(0.05)
