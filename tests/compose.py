"""docker-compose.yml and the Dockerfile as they are written, for tests that hold them against the code or run what they say."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
COMPOSE_FILE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy/Dockerfile"

_VARIABLE = re.compile(r"\$\{(\w+):([-?])([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume or a file of this repository at *target* of a container."""

    source: str
    target: str
    read_only: bool

    @property
    def is_volume(self) -> bool:
        return not self.source.startswith(".")


@dataclass(frozen=True, slots=True)
class ComposeService:
    """One service of the compose file, its variables substituted."""

    name: str
    image: str | None
    target: str | None
    command: tuple[str, ...]
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    needs: Mapping[str, str]
    """The services that come before it, each with compose's condition."""
    ports: tuple[tuple[int, int], ...]
    """Published ports: (the host's, its own)."""
    healthcheck: tuple[str, ...]


class Compose:
    """The compose file with *variables* in place of `${…}`; raises KeyError for one that must be set and is not."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.document: dict[str, Any] = _substituted(yaml.safe_load(COMPOSE_FILE.read_text()), variables)
        self.services = {name: _service(name, said) for name, said in self.document["services"].items()}

    @staticmethod
    def required() -> set[str]:
        """The variables that must be set."""
        return {name for name, kind, _ in _VARIABLE.findall(COMPOSE_FILE.read_text()) if kind == "?"}

    @staticmethod
    def optional() -> dict[str, str]:
        """The variables that may be set, with what holds where they are not."""
        return {name: default for name, kind, default in _VARIABLE.findall(COMPOSE_FILE.read_text()) if kind == "-"}


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the Dockerfile: its instructions in order, as (word, rest)."""

    name: str
    base: str
    instructions: tuple[tuple[str, str], ...]

    def of(self, word: str) -> list[str]:
        """What follows each instruction *word*."""
        return [rest for instruction, rest in self.instructions if instruction == word]


@dataclass
class Dockerfile:
    """deploy/Dockerfile by stages."""

    text: str = field(default_factory=DOCKERFILE.read_text)

    @cached_property
    def stages(self) -> dict[str, Stage]:
        lines = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", self.text)).splitlines()
        found: dict[str, Stage] = {}
        current: list[tuple[str, str]] = []
        for line in filter(None, lines):
            word, rest = line.split(maxsplit=1)
            if word == "FROM":
                base, _, name = rest.split()
                current = []
                found[name] = Stage(name, base, ())
            else:
                current.append((word, rest))
                last = next(reversed(found))
                found[last] = Stage(last, found[last].base, tuple(current))
        return found

    def copied(self, stage: str) -> dict[str, str]:
        """What *stage* copies from the repository, and where to."""
        pairs: dict[str, str] = {}
        for rest in self.stages[stage].of("COPY"):
            *sources, target = rest.split()
            if not rest.startswith("--from"):
                pairs |= dict.fromkeys(sources, target)
        return pairs

    def command(self, stage: str) -> tuple[str, ...]:
        """The command that a container of *stage* runs where nothing else is said."""
        return tuple(json.loads(self.stages[stage].of("CMD")[-1]))

    def healthcheck(self, stage: str) -> tuple[str, ...] | None:
        """The command by which *stage* says that it is well; None where it has none."""
        said = self.stages[stage].of("HEALTHCHECK") or self.stages[self.stages[stage].base].of("HEALTHCHECK")
        return None if said[-1] == "NONE" else tuple(json.loads(said[-1].partition("CMD ")[2]))

    def environment(self, stage: str) -> dict[str, str]:
        """The variables that the image sets, those of its base included."""
        base = self.environment(self.stages[stage].base) if self.stages[stage].base in self.stages else {}
        words = [word for rest in self.stages[stage].of("ENV") for word in shlex.split(rest)]
        return base | dict(word.split("=", 1) for word in words)


def _substituted(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _substituted(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_substituted(each, variables) for each in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        name, kind, default = found.groups()
        return variables[name] if kind == "?" else variables.get(name) or default

    return _VARIABLE.sub(fill, value)


def _service(name: str, said: Mapping[str, Any]) -> ComposeService:
    needs = said.get("depends_on", {})
    return ComposeService(
        name=name,
        image=said.get("image"),
        target=said.get("build", {}).get("target"),
        command=tuple(said.get("command", ())),
        environment=said.get("environment", {}),
        mounts=tuple(map(_mount, said.get("volumes", ()))),
        needs={name: needs[name]["condition"] if isinstance(needs, dict) else "service_started" for name in needs},
        ports=tuple(_port(port) for port in said.get("ports", ())),
        healthcheck=tuple(said.get("healthcheck", {}).get("test", ())),
    )


def _mount(text: str) -> Mount:
    source, target, *how = text.split(":")
    return Mount(source, target, how == ["ro"])


def _port(text: str) -> tuple[int, int]:
    *_, outer, inner = text.split(":")
    return int(outer), int(inner)
