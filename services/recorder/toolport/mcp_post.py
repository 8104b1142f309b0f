"""A `tools/call` of a server without sessions (MCP 2026-07-28): one POST and its answer.

The MCP client's own way leads each request through a session's streams and tasks, which cost a call as much as all the rest
of it together. It still makes the connection, lists and listens, and takes every call that this way leaves to it.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any, Final

import aiohttp
import httpx2
import mcp_types as types
from aiohttp.abc import AbstractResolver, ResolveResult
from mcp import Client, MCPError
from mcp_types import methods
from pydantic import TypeAdapter

from recorder.toolport import secrets
from recorder.toolport.http_target import Pin, origin_of
from recorder.toolport.mcp_codes import FAILED, NOT_SENT
from recorder.toolport.mcp_connection import mark_sent
from recorder.toolport.mcp_http import CONNECT_SECONDS, MAX_ANSWER_BYTES, refusal, trusted
from takeback import json
from takeback.errors import words_of

Json = dict[str, Any]
_METHOD: Final = "tools/call"
_ACCEPT: Final = "application/json, text/event-stream"
_MOST_CONNECTIONS: Final = 200
_LONGEST_HEADER_BYTES: Final = 102_400
_MOST_HEADERS: Final = 1000
"""As much as the MCP client takes, or more: an answer that is not read leaves its call in doubt."""
_IDLE_SECONDS: Final = 3.0
"""Shorter than servers wait (5 s is usual): a request must not meet the end of its connection, that would leave it in doubt."""


class HttpPosts:
    """Posts calls to *url*, as `http_transport` would send them: with its headers and secrets, to the address of *pin*."""

    def __init__(self, url: str, headers: Mapping[str, str], environ: Mapping[str, str], pin: Pin | None) -> None:
        self._url = url
        self._headers = headers
        self._environ = environ
        self._pin = pin
        self._origin = origin_of(url)
        self._numbers = itertools.count(1)
        self._session: aiohttp.ClientSession | None = None

    async def call(self, client: Client, params: Json) -> Json:
        """The result of the call with *params*, as it came. The caller's deadline ends it, and leaving hangs up.

        Raises `NotSent` and `ToolRefused`, `MCPError` for what the server says or a code of `mcp_codes`, and pydantic's
        `ValidationError` for what is no result.
        """
        options: dict[str, Any] = {}
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": _METHOD, "params": params}
        # What every request of this revision says of itself, the client alone knows; the version of the SDK is pinned.
        client.session._stamp(message, options)  # type: ignore[arg-type]
        headers = {
            "Accept": _ACCEPT,
            "Content-Type": "application/json",
            **options["headers"],
            **secrets.resolve(self._headers, self._environ, self._url),
        }
        if self._pin is not None:
            await self._pin.address()  # a number instead of a name is not looked up below
        answer = await self._answer(json.compact(message), headers)
        if answer.get("error") is not None:
            error = types.ErrorData.model_validate(answer["error"])
            raise MCPError(error.code, error.message, error.data)
        result = answer.get("result")
        if not isinstance(result, dict):
            raise MCPError(FAILED, f"{self._origin} answered with no result")
        _results(client.protocol_version).validate_python(result, by_name=False)
        return result

    async def close(self) -> None:
        """Hangs up."""
        if self._session is not None:
            await self._session.close()

    async def _answer(self, body: bytes, headers: Mapping[str, str]) -> Json:
        mark_sent()
        try:
            async with self._opened().post(self._url, data=body, headers=headers, allow_redirects=False) as response:
                return await self._read(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            if self._pin is not None:
                self._pin.let_go()
            raise MCPError(NOT_SENT, f"no connection to {self._origin}: {words_of(error)}") from error
        except aiohttp.ClientError as error:
            raise MCPError(FAILED, f"{self._origin} dropped the request: {words_of(error)}") from error
        except ValueError as error:  # a header that HTTP cannot carry, a secret with a line break in it
            raise MCPError(NOT_SENT, f"no request can be made of it: {error}") from error

    async def _read(self, response: aiohttp.ClientResponse) -> Json:
        kind = response.headers.get("content-type", "").lower()  # `content_type` does not survive every value
        if response.status < 300 and kind.startswith("text/event-stream"):
            return await self._last_event(response)
        body = await _Limited(response, self._origin).all()
        if response.status >= 300:
            code, text = refusal(self._origin, response.status, body)
            raise MCPError(code, text, {"status": response.status})
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise MCPError(FAILED, f"{self._origin} answered with no JSON object")
        return answer

    async def _last_event(self, response: aiohttp.ClientResponse) -> Json:
        """The answer at the end of a stream; nobody listens to what is told before."""
        stream = httpx2.Response(
            200,
            headers={"content-type": "text/event-stream"},
            stream=_Limited(response, self._origin),
            request=httpx2.Request("POST", self._url),
        )
        try:
            async for event in httpx2.EventSource(stream, max_event_size=MAX_ANSWER_BYTES):
                message = json.loads(event.data) if event.data else None
                if isinstance(message, dict) and ("result" in message or "error" in message):
                    return message
        except (httpx2.SSEError, ValueError) as error:
            raise MCPError(FAILED, f"the stream of {self._origin} is none of messages: {error}") from error
        raise MCPError(FAILED, f"the stream of {self._origin} ended without an answer")

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=_MOST_CONNECTIONS,
                keepalive_timeout=_IDLE_SECONDS,
                ssl=trusted(),
                resolver=None if self._pin is None else _Pinned(self._pin),
                use_dns_cache=False,
            )
            # The caller's deadline ends a request, not a pause between two bytes.
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                max_field_size=_LONGEST_HEADER_BYTES,
                max_headers=_MOST_HEADERS,
            )
        return self._session


@cache
def _results(revision: str) -> TypeAdapter[Any]:
    """What a result has to be like in *revision*."""
    kind: Any = methods.SERVER_RESULTS[_METHOD, revision]
    return TypeAdapter(kind)


class _Pinned(AbstractResolver):
    """Every name is at the address of *pin*; certificate and Host stay the name's."""

    def __init__(self, pin: Pin) -> None:
        self._pin = pin

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002  the address says which
    ) -> list[ResolveResult]:
        address = await self._pin.address()
        found = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [ResolveResult(hostname=host, host=address, port=port, family=found, proto=0, flags=0)]

    async def close(self) -> None:
        """Nothing is held."""


class _Limited(httpx2.AsyncByteStream):
    """The bytes of an answer, up to as many as anybody reads."""

    def __init__(self, response: aiohttp.ClientResponse, origin: str) -> None:
        self._content = response.content
        self._origin = origin
        self._size = 0

    async def all(self) -> bytes:
        """All of them. (Not by iterating over itself: that costs a call as much as reading its answer as JSON.)"""
        chunks = []
        while chunk := await self._next():
            chunks.append(chunk)
        return b"".join(chunks)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self._next():
            yield chunk

    async def _next(self) -> bytes:
        chunk = await self._content.readany()
        self._size += len(chunk)
        if self._size > MAX_ANSWER_BYTES:
            raise MCPError(FAILED, f"the answer of {self._origin} is larger than {MAX_ANSWER_BYTES} bytes")
        return chunk
