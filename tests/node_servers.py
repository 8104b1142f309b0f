"""MCP servers from npm, for tests: the lock file in tests/node says which. Without Node the tests say so and skip."""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "node"
_INSTALL_SECONDS = 90


def node_server(package: str, *arguments: str) -> tuple[str, list[str]]:
    """The command that starts *package* of tests/node/package.json, with *arguments*; installs all of them at first."""
    missing = _missing()
    if missing is not None:
        pytest.skip(missing)
    program = FOLDER / "node_modules" / package / "dist" / "index.js"
    return "node", [str(program), *arguments]


@functools.cache
def _missing() -> str | None:
    """Why no server from npm can be started here, or None once they are installed."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"{program} is not installed here: no server from npm can be started"
    with (FOLDER / "package-lock.json").open() as wanted:
        fcntl.flock(wanted, fcntl.LOCK_EX)  # several workers may find them missing at once
        return None if _are_installed() else _install()


def _are_installed() -> bool:
    installed, wanted = FOLDER / "node_modules" / ".package-lock.json", FOLDER / "package-lock.json"
    return installed.exists() and installed.stat().st_mtime >= wanted.stat().st_mtime


def _install() -> str | None:
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"npm ci did not end in {_INSTALL_SECONDS} s: no server from npm can be started"
    return None if done.returncode == 0 else f"npm ci failed: {done.stderr.strip()[-300:]}"
