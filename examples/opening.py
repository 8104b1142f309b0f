"""Opening an example's campaign in a running installation, once: at the next start the same one is used again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from examples.client import Caller, Refused
from takeback.database import driver_url
from takeback.example import Installation

NOTES = "examples.json"
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """What an example's campaign is: its owner, members, agents (as in ``PUT …/agents/{name}``) and policy."""

    key: str
    name: str
    owner: str
    members: Mapping[str, str]
    agents: Mapping[str, dict[str, Any]]
    policy: Mapping[str, Any] = field(default_factory=dict)


async def open_campaign(installation: Installation, plan: CampaignPlan) -> str:
    """The id of the example's campaign; opened, with everybody in it, where the data folder knows of none."""
    noted = read_notes(installation.folder.path)
    async with Caller(installation.urls.http, plan.owner, installation.token(plan.owner)) as owner:
        known = noted.get(plan.key)
        if known and await _exists(owner, known):
            return str(known)
        members = [{"sub": sub, "role": role, "email": f"{sub}@acme.example"} for sub, role in plan.members.items()]
        opened = await owner.post("/v1/campaigns", {"name": plan.name, "members": members})
        campaign = str(opened["id"])
        await owner.put(f"/v1/campaigns/{campaign}/policy", dict(plan.policy))
        for name, agent in plan.agents.items():
            await owner.put(f"/v1/campaigns/{campaign}/agents/{name}", agent)
    write_notes(installation.folder.path, {plan.key: campaign})
    return campaign


async def register(installation: Installation, plan: CampaignPlan, servers: Mapping[str, dict[str, Any]]) -> None:
    """Tell the recorder where the example's tool servers are now, and let it pin what they declare."""
    campaign = read_notes(installation.folder.path)[plan.key]
    async with Caller(installation.urls.http, plan.owner, installation.token(plan.owner)) as owner:
        await asyncio.gather(
            *(owner.put(f"/v1/campaigns/{campaign}/servers/{name}", server) for name, server in servers.items())
        )


def read_notes(folder: Path) -> dict[str, Any]:
    """What the examples have noted in the data folder: their campaigns, and where their applications are."""
    try:
        notes: dict[str, Any] = json.loads((folder / NOTES).read_text())
    except FileNotFoundError:
        return {}
    return notes


def write_notes(folder: Path, more: Mapping[str, Any]) -> None:
    """Add to the notes; a value of None strikes one out.

    They hold the applications' own passwords: only the folder's owner reads them.
    """
    notes = {name: value for name, value in {**read_notes(folder), **more}.items() if value is not None}
    new = folder / f"{NOTES}.new"
    new.touch(mode=0o600)
    new.write_text(json.dumps(notes, indent=2) + "\n")
    new.rename(folder / NOTES)


def pool(installation: Installation, schema: str) -> Any:
    """Connections of an example application to its own schema; open them with ``async with``."""
    return asyncpg.create_pool(
        driver_url(installation.urls.postgres),
        min_size=0,
        max_size=6,
        server_settings={"search_path": schema, "timezone": "UTC", "application_name": f"example {schema}"},
    )


async def _exists(owner: Caller, campaign: str) -> bool:
    try:
        await owner.get(f"/v1/campaigns/{campaign}")
    except Refused as refused:
        if refused.status == NOT_FOUND:  # the database was emptied, the data folder was not
            return False
        raise
    return True
