"""The container backend of the fixtures, where a Docker engine answers: the same servers, started, killed and started again."""

import asyncio
import os
from pathlib import Path

import asyncpg
import nats
import pytest
import redis.asyncio
from docker.errors import ImageNotFound
from testcontainers.core.docker_client import DockerClient

from tests.containers import NATS_IMAGE, POSTGRES_IMAGE, VALKEY_IMAGE, Containers
from tests.servers import Server


async def asks_postgres(url: str) -> None:
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("select 1") == 1
    await connection.close()


async def asks_nats(url: str) -> None:
    client = await nats.connect(url)
    assert (await client.jetstream().account_info()).streams == 0
    await client.close()


async def asks_valkey(url: str) -> None:
    async with redis.asyncio.Redis.from_url(url) as client:
        assert await client.ping()


KINDS = {
    "postgres": (POSTGRES_IMAGE, asks_postgres),
    "nats": (NATS_IMAGE, asks_nats),
    "valkey": (VALKEY_IMAGE, asks_valkey),
}


@pytest.fixture
def containers() -> Containers:
    """The backend; skips the test where there is no engine."""
    try:
        return Containers()
    except RuntimeError:
        pytest.skip("no Docker engine answers on this machine")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_in_a_container_comes_back_on_its_port(
    kind: str, containers: Containers, tmp_path: Path
) -> None:
    """Issue 2, deployment: testcontainers backs the same server fixtures where an engine exists."""
    image, asks = KINDS[kind]
    if os.environ.get("TAKEBACK_TEST_BACKEND") != "containers" and not _is_here(image):
        pytest.skip(f"{image} is not on this machine; TAKEBACK_TEST_BACKEND=containers has it fetched")
    server: Server = getattr(containers, kind)(tmp_path / kind)
    await server.start()
    try:
        url = server.url
        await _until_answered(asks, url)
        await server.kill()
        await server.start()
        assert server.url == url
        await _until_answered(asks, url)
    finally:
        await server.stop()


async def _until_answered(asks, url: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await asks(url)
                return
            except (OSError, asyncpg.PostgresError, nats.errors.Error, redis.exceptions.ConnectionError):
                await asyncio.sleep(0.1)


def _is_here(image: str) -> bool:
    try:
        DockerClient().client.images.get(image)
    except ImageNotFound:
        return False
    return True
