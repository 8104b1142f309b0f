"""PostgreSQL as a child process, with its data in a folder."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from takeback.embedded.binaries import postgres_bin
from takeback.embedded.errors import EmbeddedServerError
from takeback.embedded.predecessor import HAS_PROCFS, wait_until_gone
from takeback.embedded.process import ServerProcess
from takeback.embedded.server import EmbeddedServer

OWNER = "takeback"
DATABASE = "takeback"

# The journal commits all the time in small groups. Recycled WAL keeps the p99 flat from the first minute
# (a fresh cluster shows 50 ms until its segments have been written once), checkpoints are spread and rare.
JOURNAL_SETTINGS: Mapping[str, str] = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "min_wal_size": "512MB",
    "max_wal_size": "2GB",
    "wal_buffers": "16MB",
    "wal_compression": "off",
    "wal_init_zero": "on",
    "checkpoint_timeout": "15min",
    "checkpoint_completion_target": "0.9",
    "random_page_cost": "1.1",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}


class EmbeddedPostgres(EmbeddedServer):
    """One PostgreSQL cluster in `data/`, its owner's password in `password`.

    `url` names its owner, a superuser, and the database `takeback`. *settings* come on top of `JOURNAL_SETTINGS`. With
    *trust* no role needs a password (for tests).
    """

    stop_signal = signal.SIGINT  # fast shutdown: open transactions are rolled back, a checkpoint is written

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        trust: bool = False,
    ) -> None:
        super().__init__(folder, port=port)
        self._trust = trust
        self._settings = {**JOURNAL_SETTINGS, **(settings or {})}

    @property
    def url(self) -> str:
        """Where it listens, with the owner's password."""
        password = (self.folder / "password").read_text().strip()
        return f"postgresql://{OWNER}:{password}@127.0.0.1:{self.port}/{DATABASE}"

    async def _prepare(self) -> None:
        self._bin = postgres_bin()
        self._prefix, self._identity = _as_no_root(self.folder)
        if not (self._data / "PG_VERSION").exists():
            await self._initdb()
        self._refuse_other_version()
        await _clear_stale_lock(self._data)

    async def _start_on(self, port: int) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            **self._settings,
        }
        self._process = ServerProcess(
            [
                *self._prefix,
                self._bin / "postgres",
                "-D",
                self._data,  # a word of its own: a successor looks for it
                *(f"--{key}={value}" for key, value in options.items()),
            ],
            name="postgres",
            log=self.folder / "postgres.log",
            on_parent_death=signal.SIGQUIT,  # the journal's commits are on disk: end at once, recover at the next start
            identity=self._identity,
        )
        self._process.spawn()
        await self._process.wait_until(self._is_ready, seconds=60)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _is_ready(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"
        return False

    async def _initdb(self) -> None:
        password_file = self.folder / "password"
        if not password_file.exists():
            password_file.touch(mode=0o600)
            password_file.write_text(secrets.token_urlsafe(24) + "\n")
        making = self.folder / "data.new"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        if self._identity:
            for path in (making, password_file):
                shutil.chown(path, self._identity["user"], self._identity["group"])
        initdb = ServerProcess(
            [
                *self._prefix,
                self._bin / "initdb",
                *("-D", making, "-U", OWNER, "-E", "UTF8", "--locale=C", "--no-sync", "--data-checksums"),
                *(
                    "--auth-local=reject",
                    f"--auth-host={'trust' if self._trust else 'scram-sha-256'}",
                    f"--pwfile={password_file}",
                ),
            ],
            name="initdb",
            log=self.folder / "postgres.log",
            identity=self._identity,
        )
        initdb.spawn()
        await initdb.finish()
        create = subprocess.run(  # noqa: ASYNC221  a tenth of a second, once in the life of a folder
            [*self._prefix, self._bin / "postgres", "--single", "-D", making, "postgres"],
            input=f"CREATE DATABASE {DATABASE} OWNER {OWNER};\n".encode(),
            capture_output=True,
            check=False,
            **self._identity,
        )
        if create.returncode:
            raise EmbeddedServerError(f"PostgreSQL could not make its database: {create.stderr.decode()}")
        making.rename(self._data)  # a start that was interrupted leaves data.new, never half a cluster

    def _refuse_other_version(self) -> None:
        have = (self._data / "PG_VERSION").read_text().strip()
        program = _major_version(self._bin)
        if have != program:
            raise EmbeddedServerError(
                f"The data in {self._data} was written by PostgreSQL {have}, but {self._bin} holds version {program}. "
                "Nothing was changed. Install the matching version, or move the folder's data with pg_dump."
            )


@cache
def _major_version(bin_folder: Path) -> str:
    said = subprocess.run([bin_folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[2].split(".")[0]


def _as_no_root(folder: Path) -> tuple[list[str], dict[str, Any]]:
    """PostgreSQL refuses to run as root: what to put before its command, and whom to start it as.

    A user namespace in which root is somebody else leaves the files root's own. Where namespaces are blocked, the
    user `nobody` gets the folder.
    """
    if os.geteuid() != 0:
        return [], {}
    if _namespaces_work():
        return ["unshare", "--user", "--map-user=1000", "--map-group=1000"], {}
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, "nobody", "nogroup")
    _refuse_unreachable(folder)
    return [], {"user": "nobody", "group": "nogroup", "extra_groups": []}


@cache
def _namespaces_work() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def _refuse_unreachable(folder: Path) -> None:
    closed = [path for path in folder.resolve().parents if not path.stat().st_mode & 0o001]
    if closed:
        raise EmbeddedServerError(
            f"PostgreSQL cannot run as root here and its replacement user `nobody` cannot enter {closed[-1]}. Nothing "
            f"was started. Choose a data folder that other users may enter (--data), or start Takeback as another user."
        )


async def _clear_stale_lock(data: Path) -> None:
    """Remove the lock file of a postmaster that is gone, with all its children; wait for one that is just ending.

    PostgreSQL itself asks only whether the process id lives. The caller holds the folder's lock, so no other Takeback
    is starting here.
    """
    lock = data / "postmaster.pid"
    if not lock.exists() or not HAS_PROCFS:
        return  # without procfs the question is PostgreSQL's own
    lines = lock.read_text().splitlines()
    shared_memory = lines[6].split()[-1] if len(lines) > 6 and lines[6].strip() else ""
    await wait_until_gone("PostgreSQL", int(lines[0]), data, lambda: _is_attached(shared_memory))
    lock.unlink(missing_ok=True)


def _is_attached(shared_memory_id: str) -> bool:
    """Whether a process (a backend that outlives its postmaster) still holds the cluster's shared memory."""
    segments = Path("/proc/sysvipc/shm")
    if not shared_memory_id or not segments.exists():
        return False
    header, *rows = (line.split() for line in segments.read_text().splitlines())
    return any(row[header.index("shmid")] == shared_memory_id and row[header.index("nattch")] != "0" for row in rows)
