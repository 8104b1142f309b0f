"""A recorder in a process of its own on embedded servers, with a campaign, a tool server and an open run for each caller."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from takeback.auth import issue_token
from takeback.database import migrate, service_url
from takeback.embedded import EmbeddedNats, EmbeddedPostgres, EmbeddedValkey
from takeback.keys import ensure_keys
from takeback.stack import provision
from tests.processes import TakebackProcess


@dataclass(frozen=True, slots=True)
class Recorder:
    """Where it is, the token that its door takes, and its servers."""

    url: str
    token: str
    postgres: EmbeddedPostgres
    nats: EmbeddedNats
    valkey: EmbeddedValkey

    @classmethod
    async def started(cls, folder: Path, stack: AsyncExitStack, **settings: str) -> Recorder:
        """One that runs in *folder* until *stack* is left."""
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "postgres"))
        nats = await stack.enter_async_context(EmbeddedNats(folder / "nats"))
        valkey = await stack.enter_async_context(EmbeddedValkey(folder / "valkey"))
        keys = folder / "keys"
        ensure_keys(keys)
        passwords = {"TAKEBACK_RECORDER_PASSWORD": "bench"}
        await migrate(postgres.url, passwords)
        await provision(nats.url)
        environ = {
            "TAKEBACK_POSTGRES_URL": service_url(postgres.url, "recorder", passwords),
            "TAKEBACK_NATS_URL": nats.url,
            "TAKEBACK_REDIS_URL": valkey.url,
            "TAKEBACK_KEYS_DIR": str(keys),
            **settings,
        }
        process = await stack.enter_async_context(TakebackProcess("serve", "recorder", "--port", "0", environ=environ))
        return cls(process.url, issue_token(keys / "token.pem", "bench", "human"), postgres, nats, valkey)

    async def runs(self, count: int, server: dict[str, Any]) -> list[str]:
        """Runs, each in a campaign of its own with *server* as ``bench``."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30) as http:
            opened = []
            for number in range(count):
                campaign = await _ok(http, "POST", "/v1/campaigns", {"name": f"bench {number}"})
                await _ok(http, "PUT", f"/v1/campaigns/{campaign['id']}/servers/bench", server)
                wanted = {"agent": "bot", "model": "none", "principal": "bench"}
                opened.append((await _ok(http, "POST", f"/v1/campaigns/{campaign['id']}/runs", wanted))["id"])
            return opened


async def _ok(http: httpx.AsyncClient, method: str, path: str, body: object) -> dict[str, str]:
    response = await http.request(method, path, json=body)
    response.raise_for_status()
    answer: dict[str, str] = response.json()
    return answer
