"""A notifier that delivers, with receivers of every kind, for each test here."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from tests.integration.notifier_lab import Lab, Replica, Story
from tests.integration.receivers import HookServer, MailServer
from tests.waiting import eventually

EVENTS = ["entry.committed", "entry.reverted", "broadcast.interaction_reverted"]


@pytest.fixture
async def hooks() -> AsyncIterator[HookServer]:
    async with HookServer.running() as hooks:
        yield hooks


@pytest.fixture
async def mail() -> AsyncIterator[MailServer]:
    async with MailServer.running() as mail:
        yield mail


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url, server_settings={"search_path": "notifier"})
    yield connection
    await connection.close()


@pytest.fixture
def lab(postgres_url: str, nats_url: str, mail: MailServer, tmp_path: Path) -> Lab:
    lab = Lab(postgres_url, nats_url, tmp_path)
    lab.environ |= {
        "TAKEBACK_SMTP_URL": mail.url,
        "TAKEBACK_SMTP_FROM": "takeback@acme.example",
        "TAKEBACK_PUBLIC_URL": "https://takeback.acme.example",
        "TAKEBACK_WEBHOOK_ALLOW_PRIVATE": "1",
        "TAKEBACK_WEBHOOK_RETRY_SECONDS": "0.02,0.02,0.02",
        "TAKEBACK_DELIVERY_DEADLINE_SECONDS": "20",
        "TAKEBACK_DELIVERY_POLL_SECONDS": "0.05",
    }
    return lab


@pytest.fixture
async def replica(lab: Lab, story: Story) -> AsyncIterator[Replica]:
    async with lab.notifier() as replica:
        yield replica


class Owner:
    """The campaign's owner at a replica's door."""

    def __init__(self, lab: Lab, replica: Replica, story: Story) -> None:
        self._http = replica.http
        self._headers = lab.token("gm")
        self._campaign = f"/v1/campaigns/{story.campaign}"

    async def hook(self, name: str, url: str, *types: str) -> httpx.Response:
        body = {"url": url, "types": list(types) or EVENTS}
        return await self._http.put(f"{self._campaign}/webhooks/{name}", headers=self._headers, json=body)

    async def deliveries(self, status: str | None = None) -> list[dict[str, Any]]:
        query = {"status": status} if status else {}
        answer = await self._http.get(f"{self._campaign}/deliveries", headers=self._headers, params=query)
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    async def one(self, status: str, **fields: str) -> dict[str, Any]:
        """The one delivery in *status* with *fields*, when there is one."""

        async def found() -> list[dict[str, Any]]:
            return [one for one in await self.deliveries(status) if fields.items() <= one.items()]

        [delivery] = await eventually(found)
        return delivery

    async def accepted(self, target: str, count: int) -> bool:
        """Whether so many deliveries to *target* were accepted."""
        return sum(one["target"] == target for one in await self.deliveries("accepted")) == count

    async def send_again(self, delivery: str) -> httpx.Response:
        return await self._http.post(f"{self._campaign}/deliveries/{delivery}/retry", headers=self._headers)

    async def metrics(self) -> str:
        return (await self._http.get("/metrics")).text

    async def webhooks(self) -> list[dict[str, Any]]:
        answer = await self._http.get(f"{self._campaign}/webhooks", headers=self._headers)
        items: list[dict[str, Any]] = answer.json()["items"]
        return items


@pytest.fixture
def owner(lab: Lab, replica: Replica, story: Story) -> Owner:
    return Owner(lab, replica, story)
