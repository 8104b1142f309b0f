"""Speaks to Takeback's HTTP API as the person who is signed in: pages know nothing that the API does not tell them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

import httpx

from takeback.errors import Problem, unavailable
from takeback.ids import new_id
from takeback.messages.base import MOST_NAMED

Document = dict[str, Any]
_SECONDS = 60.0
_AT_ONCE = 8
NOT_FOUND, UNAUTHENTICATED, UNAVAILABLE = 404, 401, 503
Answer = TypeVar("Answer")


class Speaker:
    """One person's questions. Every method raises the API's `Problem`, and 503 when the API cannot be reached."""

    def __init__(self, client: httpx.AsyncClient, base_url: str, token: str) -> None:
        self._client = client
        self._base_url = base_url
        self._token = token

    async def get(self, path: str, **query: Any) -> Document:
        """The document at *path*; a query parameter that is None is left out."""
        return await self._ask("GET", path, params={name: value for name, value in query.items() if value is not None})

    async def post(self, path: str, body: Document | None = None, **query: Any) -> Document:
        """What comes of *body*."""
        return await self._ask("POST", path, json=body or {}, params=query, headers={"Idempotency-Key": new_id("key")})

    async def maybe(self, path: str, **query: Any) -> Document | None:
        """The document at *path*, None where there is none."""
        try:
            return await self.get(path, **query)
        except Problem as problem:
            if problem.status != NOT_FOUND:
                raise
            return None

    async def entries(self, ids: Iterable[str]) -> dict[str, Document]:
        """These entries by id, as many as can be read."""
        wanted, gate = list(dict.fromkeys(ids)), asyncio.Semaphore(_AT_ONCE)

        async def read(entry: str) -> Document | None:
            async with gate:
                return await self.maybe(f"/v1/entries/{entry}")

        found = await asyncio.gather(*(read(entry) for entry in wanted))
        return {entry: one for entry, one in zip(wanted, found, strict=True) if one is not None}

    async def windows(self, campaign: str, ids: Iterable[str]) -> dict[str, Document]:
        """The open windows of these entries by entry, with who is on duty before they close.

        Empty while the notifier does not answer: what a page is about comes from elsewhere, and the deadline is said there.
        """
        wanted = list(dict.fromkeys(ids))
        parts = [wanted[start : start + MOST_NAMED] for start in range(0, len(wanted), MOST_NAMED)]
        try:
            pages = await asyncio.gather(*(self.get(f"/v1/campaigns/{campaign}/windows", entry=part) for part in parts))
        except Problem as problem:
            if problem.status != UNAVAILABLE:
                raise
            return {}
        return {one["entry"]: one for page in pages for one in page["items"]}

    async def _ask(self, method: str, path: str, **how: Any) -> Document:
        headers = {"Authorization": f"Bearer {self._token}", **how.pop("headers", {})}
        try:
            response = await self._client.request(
                method, self._base_url + path, headers=headers, timeout=_SECONDS, **how
            )
        except httpx.HTTPError as error:
            raise unavailable(
                "no-answer",
                "Takeback's services did not answer. What was asked may have been done: look before you repeat.",
            ) from error
        document: Document = response.json() if response.content else {}
        if response.is_success:
            return document
        raise Problem.of(document)
