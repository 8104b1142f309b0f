"""A laboratory for manifests: a recorder with reversals, an ordinary server behind a manifest, and plans made by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from recorder.answers import Answer
from takeback.messages.campaign import (
    AgentRequest,
    CampaignRequest,
    HttpServer,
    McpHttp,
    NewMember,
    Policy,
    RunRequest,
)
from takeback.messages.entry import CallRequest
from takeback.rpc import Rpc
from tests.integration.reversals_lab import AGENT, APPROVER, OWNER, PALADIN, Lab, Recorder, recorder
from tests.servers import Backend
from tests.servers import Server as ServerProcess

Server = McpHttp | HttpServer


class ManifestLab(Lab):
    """A campaign with one server, *server*, behind a manifest."""

    server = "pantry"

    async def ask(self, operation: str, *, on: str = server, **arguments: Any) -> Answer:
        """The agent's call, whatever comes of it; raises `Problem`."""
        request = CallRequest(server=on, operation=operation, arguments=arguments)
        return await self.recorder.calls.recording.call(self.run, AGENT, request)

    async def call(self, operation: str, *, principal: str | None = None, **arguments: Any) -> str:
        """The agent's call; the id of its committed entry."""
        answer = await self.ask(operation, **arguments)
        entry = answer.document["entry"]
        assert entry["status"] == "committed", answer.document
        return str(entry["id"])

    async def allow(self, *operations: str) -> None:
        """Let these operations through, whatever their undo."""
        rules = {f"{self.server}/{operation}": "allow" for operation in operations}
        await self.recorder.campaigns.put_policy(self.campaign, OWNER, Policy.model_validate({"operations": rules}))

    async def put(self, server: Server, name: str = server) -> dict[str, Any]:
        """Register a server, or the one that is there anew; raises `Problem`."""
        return await self.recorder.servers.put(self.campaign, OWNER, name, server)

    async def new_run(self) -> None:
        """Go on in a run of its own."""
        wanted = RunRequest(agent="bot", model="m1", principal=PALADIN.sub)
        self.run = (await self.recorder.runs.open(self.campaign, AGENT, wanted))["id"]

    async def back(self, *entries: str) -> list[str]:
        """Take *entries* back in this order; what became of each."""
        outcomes = await self.take_back(*entries)
        return [outcomes[entry] for entry in entries]


@asynccontextmanager
async def manifest_lab(
    database: str, servers: Backend, valkey: ServerProcess, folder: Path, server: Server, **settings: str
) -> AsyncIterator[ManifestLab]:
    """A started recorder on servers for a whole module, a campaign with *server* as ``pantry``, and an open run."""
    nats = servers.nats(folder / "nats")
    (folder / "nats").mkdir(exist_ok=True)
    await nats.start()
    environ = {
        "TAKEBACK_POSTGRES_URL": database,
        "TAKEBACK_NATS_URL": nats.url,
        "TAKEBACK_REDIS_URL": valkey.url,
        "TAKEBACK_KEYS_DIR": str(folder / "keys"),
        "TAKEBACK_SWEEP_SECONDS": "1",
        "TAKEBACK_FORWARD_DEADLINE_SECONDS": "20",
        "TAKEBACK_PIN_CHECK_SECONDS": "0.05",
        "TAKEBACK_HTTP_ALLOW_PRIVATE": "1",
        **settings,
    }
    try:
        async with recorder(environ) as running:
            yield await _opened(running, environ, server)
    finally:
        await nats.stop()


async def _opened(running: Recorder, environ: dict[str, str], server: Server) -> ManifestLab:
    members = [NewMember(sub=PALADIN.sub, role="member"), NewMember(sub=APPROVER.sub, role="approver")]
    opened = await running.campaigns.open(OWNER, CampaignRequest(name="Pantry", members=members))
    campaign = opened["id"]
    await running.servers.put(campaign, OWNER, ManifestLab.server, server)
    await running.campaigns.put_agent(campaign, OWNER, AGENT.sub, AgentRequest(memory="yes"))
    run = await running.runs.open(campaign, AGENT, RunRequest(agent="bot", model="m1", principal=PALADIN.sub))
    nothing: Any = None
    return ManifestLab(
        recorder=running, environ=environ, office=nothing, tables=nothing, campaign=campaign, run=run["id"],
        rpc=Rpc(running.client), service=nothing,
    )  # fmt: skip
