"""A planner on real servers beside a journal in memory, and people who talk to it over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from planner.app import Planner, build
from takeback import bus
from takeback.auth import Kind, issue_token
from takeback.ids import new_id
from tests.integration.journal_stand_in import JournalStandIn

CAMPAIGN = "cmp_table"


class PlannerLab:
    """Campaign `cmp_table`: gm owns it, paladin and rogue are members, `dm-agent` is an agent."""

    def __init__(self, planners: list[Planner], journal: JournalStandIn, key: Path) -> None:
        self.planners = planners
        self.journal = journal
        self.environ: dict[str, str] = {}
        self._key = key

    async def opened(self) -> Self:
        """The campaign with its members and one run for each player."""
        add, by = self.journal.add, {"sub": "gm", "kind": "human"}
        await add(
            CAMPAIGN, CAMPAIGN, "campaign.opened",
            {"campaign": CAMPAIGN, "name": "Table", "serialize": "campaign", "owner": "gm"},
        )  # fmt: skip
        for sub in ("paladin", "rogue"):
            await add(
                CAMPAIGN, CAMPAIGN, "member.changed", {"campaign": CAMPAIGN, "sub": sub, "role": "member", "by": by}
            )
        await add(
            CAMPAIGN, CAMPAIGN, "agent.changed", {"campaign": CAMPAIGN, "name": "dm-agent", "memory": "no", "by": by}
        )
        for sub in ("paladin", "rogue"):
            await add(
                CAMPAIGN, f"run_{sub}", "run.opened",
                {"run": f"run_{sub}", "campaign": CAMPAIGN, "agent": "dm-agent", "model": "m", "principal": sub, "by": by},
            )  # fmt: skip
        return self

    async def committed(self, principal: str = "paladin", number: int = 1, **changes: Any) -> dict[str, Any]:
        """One committed call: it moved hit points of creature *number* from 10 to 3; the record stands so."""
        resource = changes.pop("resource", f"table://creature/{principal}-{number}")
        effect = {
            "resource": resource,
            "before": {"version": "1", "fields": {"hp": 10}},
            "version": "2",
            "changes": [{"field": "hp", "old": 10, "new": 3}],
        }
        host = changes.pop("host", {"replacesDefault": True})
        entry = {
            "id": new_id("ent"),
            "label": f"e{number}",
            "run": f"run_{principal}",
            "campaign": CAMPAIGN,
            "interaction": f"turn-{principal}-{number}",
            "server": "table",
            "operation": "damage_creature",
            "tier": "high",
            "kind": "call",
            "arguments": {},
            "status": "committed",
            "principal": principal,
            "agent": "dm-agent",
            "model": "m",
            "effect": effect,
            "effects": [effect],
            "undo": {"kind": "compensate", "ifVersion": "2"},
            "createdAt": datetime.now(UTC).isoformat(),
        } | changes
        self.journal.records.setdefault(resource, {"exists": True, "version": "2", "fields": {"hp": 3}})
        status = {"committed": "committed", "failed": "failed", "in_doubt": "in_doubt"}[entry["status"]]
        await self.journal.add(CAMPAIGN, entry["run"], f"entry.{status}", {"entry": entry, "host": host})
        return entry

    def client(self, sub: str, kind: Kind = "human", planner: int = 0) -> httpx.AsyncClient:
        """Somebody at the HTTP door of one of the planners."""
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.planners[planner].app),
            base_url="http://planner",
            headers={"Authorization": f"Bearer {issue_token(self._key, sub, kind)}"},
            timeout=30,
        )

    async def post(self, sub: str, path: str, body: Any = None, *, kind: Kind = "human", planner: int = 0, **more: Any):
        async with self.client(sub, kind, planner) as client:
            return await client.post(path, json=body if body is not None else {}, **more)

    async def get(self, sub: str, path: str, *, kind: Kind = "human"):
        async with self.client(sub, kind) as client:
            return await client.get(path)

    async def plan(self, sub: str, *entries: dict[str, Any]) -> dict[str, Any]:
        """A plan for *entries*."""
        answer = await self.post(sub, f"/v1/campaigns/{CAMPAIGN}/plans", {"entries": [one["id"] for one in entries]})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())


@asynccontextmanager
async def planner_lab(postgres_url: str, nats_url: str, folder: Path, planners: int = 1) -> AsyncIterator[PlannerLab]:
    """A started lab; the planners share the database and the bus."""
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "token.pem"
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    client = await bus.connect(nats_url, "journal stand-in")
    journal = JournalStandIn(client)
    await journal.start()
    environ = {
        "TAKEBACK_POSTGRES_URL": postgres_url,
        "TAKEBACK_NATS_URL": nats_url,
        "TAKEBACK_KEYS_DIR": str(folder),
        "TAKEBACK_SWEEP_SECONDS": "0.2",
    }
    running = [await build(environ) for _ in range(planners)]
    for one in running:
        await one.start()
    lab = PlannerLab(running, journal, key)
    lab.environ = environ
    try:
        yield await lab.opened()
    finally:
        for one in running:
            await one.stop()
        await client.close()
