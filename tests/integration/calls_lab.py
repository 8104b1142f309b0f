"""What the tests of the way of a call share: a recorder, the deal server, a campaign of three people and an agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from takeback import bus
from takeback.ids import new_id
from tests.recorder_lab import Client, RecorderLab, lab_environ, recorder_lab
from tests.servers import Backend, Databases
from tests.servers_lab.deals import DealServer
from tests.waiting import eventually


@dataclass(slots=True)
class Lab:
    """One recorder with its servers; each test opens a campaign and a deal server of its own."""

    client: Client
    environ: dict[str, str]
    admin_url: str
    tools_url: str
    recorder: RecorderLab | None = None
    closing: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def deals(self) -> DealServer:
        """A deal server on a subject of its own."""
        connection = await bus.connect(self.tools_url, "deals")
        self.closing.push_async_callback(connection.close)
        server = DealServer(connection, f"tools.{new_id('deals')}")
        await server.start()
        self.closing.push_async_callback(server.stop)
        return server

    async def campaign(self, deals: DealServer, **more: Any) -> Campaign:
        """A campaign of olga (owner), ann (approver), pete and paula (members), with `deals` registered and a run open."""
        members = [
            {"sub": "ann", "role": "approver"},
            {"sub": "pete", "role": "member"},
            {"sub": "paula", "role": "member"},
        ]
        opened = await self.client.ok("POST", "/v1/campaigns", {"name": "lab", "members": members, **more})
        campaign = Campaign(self, opened["id"], "", deals)
        await campaign.owner("PUT", "agents/bot", {"memory": "no"})
        await campaign.owner("PUT", "servers/deals", {"transport": "nats", "subject": deals.subject})
        campaign.run = await campaign.open_run()
        return campaign

    async def sql(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Asks the database behind the recorder's back."""
        connection = await asyncpg.connect(self.admin_url)
        try:
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()


@dataclass(slots=True)
class Campaign:
    """A campaign in the laboratory, and the run that `bot` works in for pete."""

    lab: Lab
    id: str
    run: str
    deals: DealServer

    async def owner(self, method: str, path: str, body: Any = None) -> Any:
        return await self.lab.client.ok(method, f"/v1/campaigns/{self.id}/{path}", body)

    async def policy(self, **policy: Any) -> None:
        await self.owner("PUT", "policy", policy)

    async def open_run(self) -> str:
        wanted = {"agent": "bot", "model": "m1", "principal": "pete"}
        opened = await self.lab.client.ok("POST", f"/v1/campaigns/{self.id}/runs", wanted, sub="bot", kind="agent")
        return str(opened["id"])

    async def call(
        self, operation: str, arguments: Any = None, *, run: str | None = None, **more: Any
    ) -> httpx.Response:
        """The agent calls; *more*: members of the request, and `idempotency_key`."""
        headers = {"idempotency_key": more.pop("idempotency_key")} if "idempotency_key" in more else {}
        sub, kind = more.pop("sub", "bot"), more.pop("kind", "agent")
        wanted = {"server": "deals", "operation": operation, "arguments": arguments or {}, **more}
        return await self.lab.client("POST", f"/v1/runs/{run or self.run}/calls", wanted, sub=sub, kind=kind, **headers)

    async def set_stage(self, stage: str, deal: str = "d1", **more: Any) -> httpx.Response:
        return await self.call("set_stage", {"dealId": deal, "stage": stage}, **more)

    async def entry(self, entry: str, sub: str = "olga") -> dict[str, Any]:
        found: dict[str, Any] = await self.lab.client.ok("GET", f"/v1/entries/{entry}", sub=sub)
        return found

    async def entries(self, run: str | None = None) -> list[dict[str, Any]]:
        listed = await self.lab.client.ok("GET", f"/v1/runs/{run or self.run}/entries")
        return list(listed["items"])

    async def decide(self, approval: str, decision: str = "approve", sub: str = "olga") -> httpx.Response:
        wanted = {"decision": decision, "reason": "because"}
        return await self.lab.client("POST", f"/v1/approvals/{approval}/decision", wanted, sub=sub)

    async def status_is(self, entry: str, *statuses: str) -> dict[str, Any]:
        """The entry, once it has one of *statuses*."""

        async def reached() -> dict[str, Any] | None:
            found = await self.entry(entry)
            return found if found["status"] in statuses else None

        found: dict[str, Any] = await eventually(reached)
        return found

    async def record_types(self, stream: str | None = None) -> list[str]:
        rows = await self.lab.sql(
            "select type from recorder.records where stream = $1 order by seq", stream or self.run
        )
        return [row["type"] for row in rows]


@contextlib.asynccontextmanager
async def shared_lab(servers: Backend, databases: Databases, redis_url: str, folder: Path) -> AsyncIterator[Lab]:
    """A recorder in this process on a database and a nats-server of its own, for a whole module."""
    url = await asyncio.to_thread(databases.create)
    nats = servers.nats(folder / "nats")
    await nats.start()
    environ = lab_environ(url, nats.url, redis_url, folder)
    try:
        async with recorder_lab(environ) as recorder:
            transport = httpx.ASGITransport(recorder.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://recorder", timeout=30) as http:
                lab = Lab(Client(http, folder / "keys"), environ, url, nats.tools_url, recorder)
                async with lab.closing:
                    yield lab
    finally:
        await nats.stop()
        await asyncio.to_thread(databases.drop, url)
