"""Requests to the recorder over the bus: what another service may ask of the journal (design.md, Services)."""

from __future__ import annotations

from typing import Any

import nats.errors
from nats.aio.client import Client

from takeback import json
from takeback.errors import Problem, unavailable


class Rpc:
    """Core NATS request and reply; a reply is ``{"ok": {...}}`` or ``{"problem": {...}}``."""

    def __init__(self, client: Client, timeout_seconds: float = 10.0) -> None:
        self._client = client
        self._timeout = timeout_seconds

    async def request(self, subject: str, body: dict[str, Any], timeout_seconds: float | None = None) -> dict[str, Any]:
        """What the recorder answers.

        Raises the `Problem` that it answered, and 503 ``recorder-unavailable`` when none answered in time: whether a
        command was carried out is then not known, and sending it again under the same id is safe.
        """
        try:
            reply = await self._client.request(subject, json.dumps(body), timeout=timeout_seconds or self._timeout)
        except nats.errors.Error as error:
            raise unavailable(
                "recorder-unavailable", "No recorder answered in time. Try again: the same request is carried out once."
            ) from error
        answer: dict[str, Any] = json.loads(reply.data)
        if "problem" in answer:
            raise Problem.of(answer["problem"])
        ok: dict[str, Any] = answer["ok"]
        return ok
