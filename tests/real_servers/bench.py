"""What the tests do with a real server behind its shipped manifest: an agent calls, an owner takes back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
from mcp.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters

from takeback.database import driver_url
from tests.mcp_lab import McpCampaign


@dataclass(slots=True)
class Bench:
    """A campaign with one real server, registered as *server*; *config* says how it is reached."""

    campaign: McpCampaign
    server: str
    config: dict[str, Any]

    async def ask(self, operation: str, **arguments: Any) -> httpx.Response:
        """The agent's call, whatever comes of it."""
        wanted = {"server": self.server, "operation": operation, "arguments": arguments}
        return await self.campaign.lab.client(
            "POST", f"/v1/runs/{self.campaign.run}/calls", wanted, sub="bot", kind="agent"
        )

    async def call(self, operation: str, **arguments: Any) -> str:
        """The agent's call, which goes through without asking; its entry."""
        response = await self.ask(operation, **arguments)
        assert response.status_code == 200, response.text
        return str(response.json()["entry"]["id"])

    async def asked(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """The entry of a call that waits for a person."""
        response = await self.ask(operation, **arguments)
        assert response.status_code == 202, response.text
        entry: dict[str, Any] = response.json()["entry"]
        return entry

    async def alone(self, operation: str, **arguments: Any) -> str:
        """The same as `call`, in a run of its own: what was called before it is not what it builds on."""
        wanted = {"agent": "bot", "model": "m1", "principal": "pete"}
        path = f"/v1/campaigns/{self.campaign.id}/runs"
        opened = await self.campaign.lab.client.ok("POST", path, wanted, sub="bot", kind="agent")
        self.campaign.run = opened["id"]
        return await self.call(operation, **arguments)

    async def asked_why(self) -> list[str]:
        """Why people were asked, in the words that they are told; agents never hear them."""
        connection = await asyncpg.connect(driver_url(self.campaign.lab.environ["TAKEBACK_POSTGRES_URL"]))
        try:
            wanted = "select body from recorder.records where campaign = $1 and type = 'approval.requested'"
            return [json.loads(row["body"])["why"] for row in await connection.fetch(wanted, self.campaign.id)]
        finally:
            await connection.close()

    @asynccontextmanager
    async def held(self, resource: str) -> AsyncIterator[None]:
        """*resource*, as another recorder holds it that is taking something back."""
        connection = await asyncpg.connect(driver_url(self.campaign.lab.environ["TAKEBACK_POSTGRES_URL"]))
        try:
            row = (self.campaign.id, resource)
            await connection.execute("insert into recorder.holds values ($1, $2, 'pln_elsewhere')", *row)
            yield
            await connection.execute("delete from recorder.holds where campaign = $1 and resource = $2", *row)
        finally:
            await connection.close()

    async def entry(self, id_: str) -> dict[str, Any]:
        """The entry as it is now."""
        entry: dict[str, Any] = await self.campaign.lab.client.ok("GET", f"/v1/entries/{id_}")
        return entry

    async def plan(self, *entries: str) -> dict[str, Any]:
        """The planner's plan to take these back."""
        plan: dict[str, Any] = await self.campaign.owner("POST", "plans", {"entries": list(entries)})
        return plan

    async def approve(self, plan: dict[str, Any], **decision: Any) -> dict[str, str]:
        """What became of each step of *plan*."""
        wanted = {"decision": "approve", "digest": plan["digest"], "reason": "it was a mistake", **decision}
        ended = await self.campaign.lab.client.ok("POST", f"/v1/plans/{plan['id']}/decision?wait=25", wanted)
        return {receipt["entry"]: receipt["outcome"] for receipt in ended["record"]["receipts"]}

    async def back(self, *entries: str) -> list[str]:
        """Take these back in one plan; what became of each."""
        outcomes = await self.approve(await self.plan(*entries))
        return [outcomes.get(entry, "no step") for entry in entries]

    @asynccontextmanager
    async def somebody(self) -> AsyncIterator[McpClient]:
        """Somebody else at the same MCP server, past the recorder."""
        command = StdioServerParameters(
            command=self.config["command"], args=self.config["args"], env=self.config.get("env")
        )
        async with McpClient(command, mode="legacy", cache=None) as client:
            yield client
