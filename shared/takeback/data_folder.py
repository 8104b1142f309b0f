"""The data folder of an embedded stack: who runs on it, its keys, and where its servers listen."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from takeback.auth import Kind, issue_token
from takeback.keys import SIGNING_PUBLIC_KEY, TOKEN_KEY, ensure_keys, keys_folder


class FolderInUse(Exception):
    """Another Takeback runs on this folder. Nothing was started."""


class NothingRuns(Exception):
    """A command needs a running stack, and neither the environment nor the data folder names one."""


@dataclass(frozen=True, slots=True)
class Urls:
    """Where a running embedded stack listens (`urls.json`).

    `nats` may only subscribe to `takeback.>`, `nats_tools` serves `tools.>`.
    """

    http: str
    nats: str
    nats_tools: str
    postgres: str
    redis: str

    def wire(self) -> dict[str, str]:
        """As it stands in `urls.json`."""
        return {("natsTools" if name == "nats_tools" else name): value for name, value in asdict(self).items()}

    @classmethod
    def of(cls, wire: Mapping[str, str]) -> "Urls":
        """What `urls.json` says."""
        return cls(**{("nats_tools" if name == "natsTools" else name): value for name, value in wire.items()})


class DataFolder:
    """`data/`: `lock`, `keys/`, `public_key.pem`, `urls.json` while it runs, and a folder for each embedded server."""

    def __init__(self, path: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.path = path.resolve()
        self.keys = keys_folder(environ, self.path)
        self._environ = environ

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for this process; the kernel lets go of it however the process ends.

        Raises FolderInUse, which says who holds it and what to do.
        """
        self.path.mkdir(mode=0o711, parents=True, exist_ok=True)
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderInUse(self._in_use(lock.read())) from None
            self.forget_urls()  # those of a run that was killed
            _rewrite(lock, {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")})
            try:
                yield
            finally:
                self.forget_urls()
                lock.truncate(0)

    def prepare(self) -> None:
        """Make the keys where they are missing, and put the public one where readers of records look for it."""
        ensure_keys(self.keys)
        shutil.copyfile(self.keys / SIGNING_PUBLIC_KEY, self.path / "public_key.pem")

    def token(self, sub: str, kind: Kind = "human") -> str:
        """A bearer token for *sub*. Raises NothingRuns where the folder has no key to sign with."""
        key = self.keys / TOKEN_KEY
        if not key.exists():
            raise NothingRuns(
                f"There is no {key} to sign a token with. Start Takeback on this folder once "
                f"(takeback serve --data {self.path}), or name the folder with --data."
            )
        return issue_token(key, sub, kind)

    def urls(self) -> Urls | None:
        """Where the stack that runs on this folder listens; None when none runs."""
        if not self._is_held():
            return None
        try:
            return Urls.of(json.loads((self.path / "urls.json").read_text()))
        except FileNotFoundError:
            return None

    def write_urls(self, urls: Urls, services: Mapping[str, str]) -> None:
        """Say that the stack is ready, and where: `urls.json` for others, `services.json` for Takeback's own commands.

        Both hold passwords: only their owner reads them.
        """
        for name, content in (("services.json", services), ("urls.json", urls.wire())):
            new = self.path / f"{name}.new"
            new.touch(mode=0o600)
            new.write_text(json.dumps(dict(content), indent=2) + "\n")
            new.rename(self.path / name)

    def forget_urls(self) -> None:
        """Say that the stack is no longer ready."""
        for name in ("urls.json", "services.json"):
            (self.path / name).unlink(missing_ok=True)

    def environ(self) -> dict[str, str]:
        """The settings of a command (`fsck`, `rebuild`): the environment, and the running stack where it is silent.

        Raises NothingRuns when neither says where PostgreSQL is.
        """
        settings = {**self._environ, "TAKEBACK_KEYS_DIR": str(self.keys)}
        if "TAKEBACK_POSTGRES_URL" in settings:
            return settings
        if not self._is_held() or not (running := self.path / "services.json").exists():
            raise NothingRuns(
                f"Nothing runs on {self.path}, and TAKEBACK_POSTGRES_URL is not set. Start it (takeback serve --data "
                f"{self.path}), name another folder with --data, or set the variable."
            )
        return {**settings, **json.loads(running.read_text())}

    def _is_held(self) -> bool:
        try:
            with (self.path / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def _in_use(self, holder: str) -> str:
        who = json.loads(holder) if holder else {}
        pid = who.get("pid", "of another user or container")
        urls = self.path / "urls.json"
        where = f" at {json.loads(urls.read_text())['http']}" if urls.exists() else ""
        return (
            f"Takeback already runs on {self.path}{where}: process {pid}, since {who.get('since', 'a moment ago')}. "
            f"Nothing was started and nothing was changed. Use that one, stop it (kill -INT {pid}), or choose another "
            "folder with --data."
        )


def _rewrite(file: Any, content: Mapping[str, Any]) -> None:
    file.truncate(0)
    file.write(json.dumps(content))
    file.flush()
