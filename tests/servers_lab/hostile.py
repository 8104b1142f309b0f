"""A tool server over streamable HTTP that answers whatever JSON a test puts into it, right or wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.serving import served

_INFO = {"name": "hostile", "version": "1"}
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@dataclass
class Hostile:
    """*answers*: what stands behind ``"id": …,`` in the answer to a method, as JSON text. *asked*: every request."""

    answers: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=lambda: [{"name": "look", "inputSchema": {"type": "object"}}])
    capabilities: dict[str, Any] = field(
        default_factory=lambda: {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
    )
    progress: str = ""
    url: str = ""

    def result(self, method: str, result: Any) -> None:
        """From now on *method* has that result."""
        self.answers[method] = '"result":' + json.dumps(result)

    def error(self, method: str, error: Any) -> None:
        """From now on *method* has that error."""
        self.answers[method] = '"error":' + json.dumps(error)

    def of(self, method: str) -> list[dict[str, Any]]:
        """The params of the requests for *method*."""
        return [message.get("params", {}) for message in self.asked if message.get("method") == method]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Hostile]:
        """Serves HTTP on a free port while the context is open."""
        async with served(self) as url:
            self.url = f"{url}/mcp"
            yield self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] != "POST":
            await _answer(send, 405, b"")
            return
        body = b""
        while (part := await receive())["type"] == "http.request":
            body += part["body"]
            if not part.get("more_body"):
                break
        message = json.loads(body)
        if "id" not in message:
            await _answer(send, 202, b"")
            return
        self.asked.append(message)
        if self.answers.get(message["method"]) in ("die", "hang"):
            if self.answers[message["method"]] == "hang":
                while (await receive())["type"] != "http.disconnect":
                    pass
            raise ConnectionError("gone")
        token = message.get("params", {}).get("_meta", {}).get("progressToken")
        told = self.answers.get(message["method"]) or self._known(message["method"])
        text = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},{told}}}'
        if self.progress and token is not None:
            said = (
                '{"jsonrpc":"2.0","method":"notifications/progress","params":' + self.progress % json.dumps(token) + "}"
            )
            await _answer(send, 200, f"data: {said}\n\ndata: {text}\n\n".encode(), b"text/event-stream")
            return
        await _answer(send, 200, text.encode("utf-8", "surrogatepass"))

    def _known(self, method: str) -> str:
        known = {
            "server/discover": MODERN
            | {
                "supportedVersions": ["2026-07-28"],
                "capabilities": self.capabilities,
                "_meta": {"io.modelcontextprotocol/serverInfo": _INFO},
            },
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "serverInfo": _INFO},
            "tools/list": MODERN | {"tools": self.tools},
        }
        if method not in known:
            return '"error":{"code":-32601,"message":"Method not found"}'
        return '"result":' + json.dumps(known[method])


async def _answer(send: Any, status: int, body: bytes, kind: bytes = b"application/json") -> None:
    headers = [(b"content-type", kind)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
