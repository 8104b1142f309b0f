"""An Otter Wiki of one's own: the application from PyPI as it is, on a free port of this machine.

It pins libraries that Takeback has newer, so it lives in a virtual environment of its own: `make .venv/.otterwiki`.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

INTERPRETER = Path(sys.prefix) / "otterwiki" / "bin" / "python"
_SETTINGS = """\
REPOSITORY = "{pages}"
SQLALCHEMY_DATABASE_URI = "sqlite:///{database}"
SECRET_KEY = "{secret}"
AUTH_METHOD = "PROXY_HEADER"
READ_ACCESS = WRITE_ACCESS = "ANONYMOUS"
SEND_FILE_MAX_AGE_DEFAULT = 3600
"""
_READY = re.compile(rb"Running on (http://127\.0\.0\.1:\d+)")


class NoWiki(Exception):
    """The wiki is not installed: `make .venv/.otterwiki`."""


def installed() -> Path:
    """The wiki's own Python. Raises `NoWiki`."""
    if not INTERPRETER.exists():
        raise NoWiki(NoWiki.__doc__)
    return INTERPRETER


@asynccontextmanager
async def otter_wiki(folder: Path) -> AsyncIterator[str]:
    """A wiki whose pages are a git repository in *folder*, until the context ends; gives its URL. Raises `NoWiki`."""
    python = installed()
    pages = folder / "pages"
    if not pages.exists():
        git = await asyncio.create_subprocess_exec("git", "init", "--quiet", str(pages))
        await git.wait()
    settings = folder / "wiki.cfg"
    settings.write_text(_SETTINGS.format(pages=pages, database=folder / "wiki.sqlite", secret=secrets.token_hex()))
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-m", "flask", "--app", "otterwiki.server", "run", "--port", "0"),
        env={"PATH": os.environ["PATH"], "OTTERWIKI_SETTINGS": str(settings)},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
    )
    reading: asyncio.Task[None] | None = None
    try:
        url = await _ready(process)
        reading = asyncio.create_task(_drain(process))
        yield url
    finally:
        process.terminate()
        await process.wait()
        if reading is not None:
            await reading


async def _ready(process: Process) -> str:
    assert process.stdout is not None
    said = b""
    async for line in process.stdout:
        if found := _READY.search(line):
            return found[1].decode()
        said += line
    raise RuntimeError(f"An Otter Wiki did not start: {said.decode(errors='replace')}")


async def _drain(process: Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass
