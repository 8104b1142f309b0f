"""A service whose background task has died is not ready, says which one, and ends so that it is started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from takeback.database import service_url
from takeback.edge import Edge
from takeback.service import Running
from takeback.serving import TaskLost, check
from takeback.stack import find_service, start_services
from takeback.tasks import end
from tests.recorder_lab import lab_environ
from tests.servers import NatsServer
from tests.waiting import eventually

SERVICES = {
    "recorder": {
        "journal writer",
        "journal publisher",
        "outbox sweeper",
        "reversals",
        "sweep doubts",
        "sweep continuations",
    },
    "planner": {"planner watch"},
    "notifier": {"notifier watch", "notifier announcer", "notifier deliveries", "notifier wake-ups"},
}
"""Each service, and some of what must never stop in it."""


@pytest_asyncio.fixture
async def services(
    postgres_url: str, nats_server: NatsServer, redis_url: str, tmp_path: Path
) -> AsyncIterator[dict[str, Running]]:
    """All three on real servers."""
    environ = lab_environ(postgres_url, nats_server.url, redis_url, tmp_path)
    async with AsyncExitStack() as stack:
        running = await start_services(
            [find_service(name) for name in SERVICES],
            lambda name: {**environ, "TAKEBACK_POSTGRES_URL": service_url(postgres_url, name)},
            stack,
        )
        yield {service.name: service for service in running}


async def test_readiness_names_each_background_task_that_died(services: dict[str, Running]) -> None:
    """What a dead task did is done no more: nobody may think that all is well."""
    edge = Edge(list(services.values()))

    async def ready() -> bool:
        return not await edge.not_ready()

    assert await eventually(ready)
    for name, service in services.items():
        check(service.background)
        tasks = {task.get_name(): task for task in service.background}
        assert SERVICES[name] <= tasks.keys()
        for task in tasks.values():
            await end(task)
            assert (await service.not_ready())[task.get_name()] == "it was cancelled"
            assert f"{name}.{task.get_name()}" in await edge.not_ready()
        with pytest.raises(TaskLost, match=f"{next(iter(tasks))}: it was cancelled"):
            check(service.background)


async def test_why_a_task_died_is_told() -> None:
    async def fails() -> None:
        raise RuntimeError("the ink has dried")

    task = asyncio.create_task(fails(), name="scribe")
    await asyncio.wait([task])
    with pytest.raises(TaskLost, match="scribe: it failed: the ink has dried"):
        check([task])
