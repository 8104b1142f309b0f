"""The tests' second backend: the same servers as containers, in the images that are deployed."""

from pathlib import Path

import pytest
import yaml
from docker.errors import DockerException
from testcontainers.core.docker_client import DockerClient

from tests import containers
from tests.containers import Containers
from tests.servers import Processes, backend

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"


def test_the_images_are_those_that_are_deployed() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert services["postgres"]["image"] == containers.POSTGRES_IMAGE
    assert services["nats"]["image"] == containers.NATS_IMAGE
    assert services["redis"]["image"] == containers.VALKEY_IMAGE


def test_processes_are_the_default_and_a_wrong_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAKEBACK_TEST_BACKEND", raising=False)
    assert isinstance(backend(), Processes)
    monkeypatch.setenv("TAKEBACK_TEST_BACKEND", "vm")
    with pytest.raises(ValueError, match="use 'processes' or 'containers'"):
        backend()


def test_without_an_engine_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise DockerException("no such socket")

    monkeypatch.setattr(DockerClient, "__init__", refuse)
    monkeypatch.setenv("TAKEBACK_TEST_BACKEND", "containers")
    with pytest.raises(RuntimeError, match=r"no Docker engine answers \(no such socket\). Start one"):
        backend()


def test_the_same_servers_come_from_either_backend(tmp_path: Path) -> None:
    """Building one needs no engine: what a fixture uses of a server is there in both."""
    here, there = Processes(), object.__new__(Containers)
    for kind in ("postgres", "nats", "valkey"):
        one, other = (getattr(which, kind)(tmp_path / f"{kind}-{which is here}") for which in (here, there))
        used = {
            "start",
            "stop",
            "kill",
            "url",
            *({"subscriber_url", "tools_url", "forget_streams"} if kind == "nats" else ()),
        }
        assert used <= set(dir(type(one))) & set(dir(type(other)))
