"""A recorder without its colleagues, in this process or in one that may be killed."""

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

from recorder.app import build
from recorder.calls import Calls
from takeback import bus
from takeback.auth import Kind, issue_token
from takeback.database import service_url
from takeback.keys import ensure_keys
from tests.serving import served


@dataclass(slots=True)
class RecorderLab:
    """A running recorder: its door, and what is behind it."""

    app: Starlette
    calls: Calls
    pool: asyncpg.Pool


@asynccontextmanager
async def recorder_lab(environ: Mapping[str, str]) -> AsyncIterator[RecorderLab]:
    """The recorder under *environ*, running while the context is open."""
    recorder = await build(environ)
    await bus.provision_streams(recorder._client.jetstream())
    await recorder.start()
    try:
        yield RecorderLab(recorder.app, recorder._calls, recorder._pool)
    finally:
        await recorder.stop()


def lab_environ(postgres_url: str, nats_url: str, redis_url: str, folder: Path, **more: str) -> dict[str, str]:
    """The settings of a recorder on these servers, quick to sweep and slow to doubt; its keys are in *folder*."""
    ensure_keys(folder / "keys")
    return {
        "TAKEBACK_POSTGRES_URL": service_url(postgres_url, "recorder"),
        "TAKEBACK_NATS_URL": nats_url,
        "TAKEBACK_REDIS_URL": redis_url,
        "TAKEBACK_KEYS_DIR": str(folder / "keys"),
        "TAKEBACK_FORWARD_DEADLINE_SECONDS": "20",
        "TAKEBACK_SWEEP_SECONDS": "0.1",
        "TAKEBACK_LOCK_WAIT_SECONDS": "20",
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
