"""A recorder without its colleagues: administration and the way of a call, in this process or in one that may be killed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from starlette.applications import Starlette

from recorder.api import approvals as approvals_api
from recorder.api import calls as calls_api
from recorder.api import campaigns as campaigns_api
from recorder.api import entries as entries_api
from recorder.api import runs as runs_api
from recorder.calls import Calls, put_together
from recorder.campaigns import Campaigns
from recorder.journal import Journal
from recorder.journal.outbox import Publisher, jetstream_publish
from recorder.journal.vault import Vault
from recorder.runs import Runs
from recorder.security_log import SecurityLog
from recorder.servers import Servers
from recorder.settings import Settings
from takeback import bus
from takeback.auth import Kind, issue_token
from takeback.calendars import Calendars
from takeback.database import connect_pool, service_url
from takeback.errors import Problem
from takeback.keys import ensure_keys
from takeback.locks import Locks
from takeback.outbound import guarded_client
from takeback.web import create_app
from tests.serving import served


@dataclass(slots=True)
class RecorderLab:
    """The running parts."""

    app: Starlette
    calls: Calls
    journal: Journal
    pool: asyncpg.Pool
    locks: Locks


@asynccontextmanager
async def recorder_lab(environ: Mapping[str, str]) -> AsyncIterator[RecorderLab]:
    """A recorder under *environ*, running while the context is open."""
    settings = Settings.of(environ)
    pool = await connect_pool(settings.postgres_url, "recorder")
    nats = await bus.connect(settings.nats_url, "recorder")
    js = nats.jetstream()
    await bus.provision_streams(js)
    publisher = Publisher(pool, jetstream_publish(js), settings.sweep_seconds)
    journal = Journal(settings.postgres_url, pool, publisher.committed)
    await journal.start()
    await publisher.start()
    vault = Vault.from_keys(pool, settings.keys_dir)
    campaigns = Campaigns(pool, journal, SecurityLog(pool), Calendars(guarded_client()))
    runs = Runs(pool, journal, campaigns)
    servers = Servers(pool, journal, campaigns, nats, settings, environ)
    locks = Locks(settings.redis_url)

    async def no_reversals(*_: Any) -> dict[str, Any]:
        raise Problem(409, "no-reversals", "There are no reversals in this laboratory.")

    calls = put_together(
        settings=settings,
        pool=pool,
        journal=journal,
        vault=vault,
        campaigns=campaigns,
        runs=runs,
        servers=servers,
        locks=locks,
        nats=nats,
        resolve_reversal=no_reversals,
    )

    async def ready() -> dict[str, str]:
        return {}

    app = create_app("recorder", ready)
    verifier = settings.verifier()
    app.include_router(campaigns_api.router(verifier, campaigns, servers, calls.kept))
    app.include_router(runs_api.router(verifier, campaigns, runs, None, calls.kept))  # type: ignore[arg-type]  # no exports here
    app.include_router(calls_api.router(verifier, calls.recording, calls.previews, calls.kept))
    app.include_router(entries_api.router(verifier, calls.entries, calls.doubts, calls.kept))
    app.include_router(approvals_api.router(verifier, calls.approvals, calls.kept))
    await calls.start()
    try:
        yield RecorderLab(app, calls, journal, pool, locks)
    finally:
        await calls.stop()
        await servers.close()
        await locks.close()
        await publisher.stop()
        await journal.stop()
        await nats.close()
        await pool.close()


def lab_environ(postgres_url: str, nats_url: str, redis_url: str, folder: Path, **more: str) -> dict[str, str]:
    """The settings of a recorder on these servers, quick to doubt and to sweep; its keys are in *folder*."""
    ensure_keys(folder / "keys")
    return {
        "TAKEBACK_POSTGRES_URL": service_url(postgres_url, "recorder"),
        "TAKEBACK_NATS_URL": nats_url,
        "TAKEBACK_REDIS_URL": redis_url,
        "TAKEBACK_KEYS_DIR": str(folder / "keys"),
        "TAKEBACK_FORWARD_DEADLINE_SECONDS": "1",
        "TAKEBACK_SWEEP_SECONDS": "0.1",
        "TAKEBACK_LOCK_WAIT_SECONDS": "8",
        "TAKEBACK_PIN_CHECK_SECONDS": "0.05",
        "TAKEBACK_HTTP_ALLOW_PRIVATE": "1",
        **more,
    }


class Client:
    """Speaks to a recorder as somebody."""

    def __init__(self, http: httpx.AsyncClient, keys: Path) -> None:
        self.http = http
        self._token = keys / "token.pem"
        self._tokens: dict[tuple[str, str], str] = {}

    async def __call__(
        self, method: str, path: str, body: Any = None, *, sub: str = "olga", kind: Kind = "human", **headers: str
    ) -> httpx.Response:
        """One request. *headers*: names with underscores."""
        token = self._tokens.setdefault((sub, kind), issue_token(self._token, sub, kind))
        sent = {"authorization": f"Bearer {token}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        content = {"content": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
        return await self.http.request(method, path, headers=sent, **content)

    async def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The document of a request that must succeed."""
        response = await self(method, path, body, **more)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None


async def serve(ready: Callable[[str], None]) -> None:
    """A recorder under the environment's settings, for ever; *ready* is told its URL."""
    async with recorder_lab(os.environ) as lab, served(lab.app) as url:
        ready(url)
        await asyncio.Event().wait()
