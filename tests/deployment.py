"""What docker-compose.yml says, run without an engine: each service a process of its own, exactly its command and environment.

Host names become ports of 127.0.0.1, volumes become folders, images become the programs that are in them. Takeback itself runs
from a wheel that was built from nothing but the files that the Dockerfile copies.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from email.message import Message
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from aiosmtpd.handlers import Mailbox
from aiosmtpd.smtp import SMTP

from examples.deal.post import letters
from takeback.embedded import EmbeddedPostgres
from takeback.embedded.binaries import nats_server, valkey_server
from takeback.embedded.process import ServerProcess, listens
from tests.compose import ROOT, Compose, ComposeService, Dockerfile
from tests.ports import own_port
from tests.servers import TEST_SETTINGS
from tests.waiting import WAIT_SECONDS

BIN = Path(sys.executable).parent
TAKEBACK = ("recorder-1", "recorder-2", "planner", "notifier")
_START_SECONDS = 60.0


class Deployment:
    """The compose file with *variables*, running under *folder* while the context is open."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.compose = Compose(variables)
        self.dockerfile = Dockerfile()
        self._folder = folder
        self._ports: dict[tuple[str, int], int] = {}
        self._processes: dict[str, ServerProcess] = {}
        names = "|".join(sorted(map(re.escape, self.compose.services), key=len, reverse=True))
        self._address = re.compile(rf"(?<![\w-])({names}):(\d+)\b")

    async def __aenter__(self) -> Self:
        try:
            await self._start_all()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in reversed(list(self._processes)):
            await self._processes[name].stop(seconds=5)
        if hasattr(self, "_mail"):
            self._mail.close()
        if hasattr(self, "_postgres"):
            await self._postgres.stop()

    def port(self, service: str, inner: int) -> int:
        """Where on 127.0.0.1 port *inner* of *service* is."""
        return self._ports.setdefault((service, inner), own_port())

    def url(self, service: str, inner: int) -> str:
        """The HTTP address of *service*."""
        return f"http://127.0.0.1:{self.port(service, inner)}"

    @property
    def postgres_url(self) -> str:
        """The database, as its owner."""
        return self._postgres.url

    def mounted(self, service: str, path: str) -> Path:
        """Where the file or folder is that a container of *service* sees at *path*."""
        for mount in self.compose.services[service].mounts:
            if path == mount.target or path.startswith(f"{mount.target}/"):
                base = self._folder / "volumes" / mount.source if mount.is_volume else ROOT / mount.source
                return base / path.removeprefix(mount.target).lstrip("/")
        raise KeyError(f"{service} has nothing mounted at {path}")

    def here(self, service: str, text: str) -> str:
        """*text* of *service* with the addresses and paths of this machine."""
        found = self._address.sub(lambda at: f"127.0.0.1:{self.port(at[1], int(at[2]))}", text)
        if any(found == m.target or found.startswith(f"{m.target}/") for m in self.compose.services[service].mounts):
            return str(self.mounted(service, found))
        return found

    def environment(self, service: str) -> dict[str, str]:
        """The environment of *service*, and nothing of ours beside where programs and the image's files are."""
        said = self.compose.services[service]
        image = self.dockerfile.environment(said.target) if said.target else {}
        return {
            **image,
            **{name: self.here(service, value) for name, value in said.environment.items()},
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(self._folder / "image"),
            "HOME": str(self._folder),
        }

    def process(self, service: str) -> ServerProcess:
        """The running process of *service*."""
        return self._processes[service]

    async def kill(self, *services: str) -> None:
        """SIGKILL, and no restart until `start`."""
        for service in services:
            await self._processes[service].stop(signal.SIGKILL)

    async def start(self, *services: str) -> None:
        """Start *services* (again), all at once, and wait until each is well."""
        for service in services:
            self._spawn(self.compose.services[service])
        await asyncio.gather(*(self._well(service) for service in services))

    async def revive(self) -> None:
        """Start what was killed (compose: `restart: unless-stopped`)."""
        await self.start(*(service for service in TAKEBACK if not self._processes[service].running))

    async def lose_jetstream(self) -> None:
        """Kill NATS and delete everything that JetStream has kept; `start` brings it back, empty."""
        await self.kill("nats")
        shutil.rmtree(self.mounted("nats", "/data"))

    def build(self) -> None:
        """Make what the image holds: a wheel from what the Dockerfile copies, and nothing else, installed to a folder."""
        source, image = self._folder / "source", self._folder / "image"
        for path, target in self.dockerfile.copied("build").items():
            place = source / target / Path(path).name if target.endswith(("./", ".")) else source / target
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / path).is_dir():
                shutil.copytree(ROOT / path, place, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(ROOT / path, place)
        [install] = [
            line
            for line in self.dockerfile.stages["build"].of("RUN")
            if line.endswith("install .") or " . " in f"{line} "
        ]
        command = [BIN / "python", "-m", *install.split(), "--target", image, "--quiet", "--disable-pip-version-check"]
        subprocess.run(command, cwd=source, check=True)

    async def _start_all(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        building = asyncio.create_task(asyncio.to_thread(self.build))
        servers = asyncio.gather(self._start_postgres(), self._start_mail(), self.start("nats", "redis"))
        await asyncio.gather(building, servers)
        self._spawn(self.compose.services["migrate"])
        await self._processes["migrate"].finish()
        await self.start(*TAKEBACK)
        await self.start("edge")

    async def _start_postgres(self) -> None:
        said = self.compose.services["postgres"]
        folder = self.mounted("postgres", "/var/lib/postgresql")
        folder.mkdir(parents=True)
        (folder / "password").write_text(said.environment["POSTGRES_PASSWORD"])
        self._postgres = EmbeddedPostgres(folder, port=self.port("postgres", 5432), settings=TEST_SETTINGS)
        await self._postgres.start()

    async def _start_mail(self) -> None:
        sink, loop = Mailbox(self._folder / "mail"), asyncio.get_running_loop()
        self._mail = await loop.create_server(
            lambda: SMTP(sink, hostname="mail", loop=loop), "127.0.0.1", self.port("mail", 1025)
        )

    async def delivered(self, to: str, about: str) -> list[str]:
        """The subjects of the letters to *to*, once one has come that holds *about*, in its subject or its plain text."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                came = letters(self._folder / "mail", to)
                if any(about in str(letter["Subject"]) or about in _plain_text(letter) for letter in came):
                    return [str(letter["Subject"]) for letter in came]
                await asyncio.sleep(0.05)

    def _spawn(self, said: ComposeService) -> None:
        logs = self._folder / "logs"
        logs.mkdir(exist_ok=True)
        for mount in said.mounts:
            if mount.is_volume:
                self.mounted(said.name, mount.target).mkdir(parents=True, exist_ok=True)
        environ: dict[str, Any] = {"env": self.environment(said.name), "cwd": self._folder}
        command = self._command(said, environ["env"])
        process = ServerProcess(command, name=said.name, log=logs / f"{said.name}.log", identity=environ)
        process.spawn()
        self._processes[said.name] = process

    def _command(self, said: ComposeService, environ: dict[str, str]) -> list[str | Path]:
        match said.name:
            case "nats":
                config = self._folder / "nats.conf"
                config.write_text(
                    self.mounted("nats", "/etc/nats/nats.conf")
                    .read_text()
                    .replace("store_dir: /data", f"store_dir: {self.mounted('nats', '/data')}")
                )
                ports = ["-p", str(self.port("nats", 4222)), "-m", str(self.port("nats", 8222))]
                return [nats_server(), said.command[0], config, "-a", "127.0.0.1", *ports]
            case "redis":
                here = ["--port", str(self.port("redis", 6379)), "--bind", "127.0.0.1"]
                return [valkey_server(), *said.command[1:], *here, "--dir", self.mounted("redis", "/data")]
            case "edge":
                environ["TAKEBACK_EDGE_PORT"] = str(self.port("edge", int(environ["TAKEBACK_EDGE_PORT"])))
                config = self.mounted("edge", "/etc/caddy/Caddyfile")
                return [BIN / "caddy", "run", "--config", config, "--adapter", "caddyfile"]
            case _:
                return list(self._takeback(said.name, said.command))

    def _takeback(self, service: str, words: Iterable[str]) -> Iterable[str]:
        before = ""
        for word in words:
            here = {"0.0.0.0": "127.0.0.1"}.get(word, word)
            yield str(self.port(service, int(word))) if before == "--port" else here
            before = word

    async def _well(self, service: str) -> None:
        """Wait for what compose or the image calls healthy."""
        process = self._processes[service]
        match service:
            case "redis":
                await process.wait_until(lambda: listens(self.port("redis", 6379), say=b"PING\r\n", greeting=b"+PONG"))
            case "nats":
                await process.wait_until(lambda: _answers(f"{self.url('nats', 8222)}/healthz"))
            case "edge":
                await process.wait_until(lambda: _answers(f"{self.url('edge', 8080)}/healthz"))
            case _:
                async with asyncio.timeout(_START_SECONDS):
                    while not await asyncio.to_thread(_answers, f"{self.url(service, 8420)}/readyz"):
                        assert process.running, f"{service} ended: {self.log(service)}"
                        await asyncio.sleep(0.05)

    def log(self, service: str) -> str:
        """The last lines that *service* wrote."""
        return "\n".join((self._folder / "logs" / f"{service}.log").read_text().splitlines()[-20:])


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def _plain_text(letter: Message) -> str:
    """What a reader without HTML sees, its line breaks read as blanks."""
    parts = [part for part in letter.walk() if part.get_content_type() == "text/plain"]
    texts = [bytes(part.get_payload(decode=True) or b"").decode() for part in parts]
    return " ".join(" ".join(texts).split())
