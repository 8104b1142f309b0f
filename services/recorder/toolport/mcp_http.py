"""MCP over streamable HTTP: a transport on which one failed request fails alone and says whether it was sent."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from recorder.toolport import secrets
from recorder.toolport.http_target import Pin
from recorder.toolport.mcp_codes import FAILED, NOT_SENT, PROTOCOL_REFUSALS, REFUSED, SESSION_GONE
from recorder.toolport.port import NotSent, ToolRefused
from takeback import json
from takeback.errors import words_of

CONNECT_SECONDS = 5.0
MAX_ANSWER_BYTES = 16 * 1_048_576
# The server says that it did not process the request. Not among them: 408, 409, 425 and the like, which may mean
# that something was begun.
_NOT_PROCESSED = {400, 401, 403, 404, 405, 406, 413, 414, 415, 421, 422, 429, 431}
_SESSION_HEADER = "mcp-session-id"


def http_transport(
    url: str, headers: Mapping[str, str], environ: Mapping[str, str], pin: Pin | None
) -> Callable[[], AbstractAsyncContextManager[TransportStreams]]:
    """Opens connections to *url*. Secrets in *headers* are read anew for each request, so a rotated one is used.

    With a *pin* only to its public address, looked up for each connection, and again when nobody is reached there.
    """

    @asynccontextmanager
    async def connect() -> AsyncIterator[TransportStreams]:
        limits = httpx2.Limits(max_connections=200, max_keepalive_connections=100)
        inner: httpx2.AsyncBaseTransport = httpx2.AsyncHTTPTransport(verify=trusted(), limits=limits)
        if pin is not None:
            pin.let_go()
            inner = _PublicOnly(inner, pin)
        # The caller's deadline ends a request, not a pause between two bytes.
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        transport = _OneByOne(inner, headers, environ)
        async with (
            httpx2.AsyncClient(transport=transport, timeout=timeout, trust_env=False) as client,
            streamable_http_client(url, http_client=client) as streams,
        ):
            yield streams

    return connect


@cache
def trusted() -> ssl.SSLContext:
    """The authorities that this host trusts: reading them costs as much as many calls."""
    return httpx2.create_ssl_context()


class _PublicOnly(httpx2.AsyncBaseTransport):
    """Sends to the address of *pin*; certificate and Host stay the host's."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, pin: Pin) -> None:
        self._inner = inner
        self._pin = pin

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `NotSent` and `ToolRefused`, see `pinned_address`."""
        url = request.url
        if url.host != self._pin.target.host:
            raise ToolRefused(f"{url.host} is not the registered server. Nothing was sent.")
        pinned = httpx2.Request(
            request.method,
            url.copy_with(host=await self._pin.address()),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": url.host},
        )
        try:
            return await self._inner.handle_async_request(pinned)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            self._pin.let_go()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


class _OneByOne(httpx2.AsyncBaseTransport):
    """Turns what goes wrong with one request into a JSON-RPC error for that request.

    The MCP client would take an exception here as the end of the connection, for all its callers, and would tell a
    refused status from a crash by its text alone.
    """

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, headers: Mapping[str, str], environ: Mapping[str, str]
    ) -> None:
        self._inner = inner
        self._headers = headers
        self._environ = environ

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            request.headers.update(secrets.resolve(self._headers, self._environ, str(request.url)))
        except ToolRefused as error:
            return _failure(REFUSED, str(error))
        try:
            response = await self._inner.handle_async_request(request)
        except ToolRefused as error:
            return _failure(REFUSED, str(error))
        except NotSent as error:
            return _failure(NOT_SENT, str(error))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            return _failure(NOT_SENT, f"no connection to {_origin(request)}: {words_of(error)}")
        except httpx2.TransportError as error:
            return _failure(FAILED, f"{_origin(request)} dropped the request: {words_of(error)}")
        return response if request.method != "POST" else await _checked(request, response)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _checked(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """*response*, read to its end where it is no stream, or the JSON-RPC error that it stands for."""
    kind = response.headers.get("content-type", "").lower()
    if response.status_code < 300 and kind.startswith("text/event-stream"):
        return response
    try:
        body = await _read(response)
    except httpx2.TransportError as error:
        return _failure(FAILED, f"the answer of {_origin(request)} broke off: {words_of(error)}")
    finally:
        await response.aclose()
    if body is None:
        return _failure(FAILED, f"the answer of {_origin(request)} is larger than {MAX_ANSWER_BYTES} bytes")
    if response.status_code < 300:
        kept = {name: value for name in ("content-type", _SESSION_HEADER) if (value := response.headers.get(name))}
        return httpx2.Response(response.status_code, headers=kept, content=body)
    return _refused(request, response.status_code, body)


def _refused(request: httpx2.Request, status: int, body: bytes) -> httpx2.Response:
    if _SESSION_HEADER in request.headers and (status == 404 or (status == 400 and b"session" in body.lower())):
        # 404 by the protocol; servers made after the TypeScript SDK's examples say 400, and that in words.
        return _failure(SESSION_GONE, "the tool server has forgotten the session", status)
    code, text = refusal(_origin(request), status, body)
    if code in PROTOCOL_REFUSALS:
        # As it stands: the negotiation of the protocol's revision reads some of these.
        return httpx2.Response(status, headers={"content-type": "application/json"}, content=body)
    return _failure(code, text, status)


def refusal(origin: str, status: int, body: bytes) -> tuple[int, str]:
    """What an answer of *origin* says that is no success: the JSON-RPC error's code and words."""
    said = _json_rpc_error(body)
    if said is not None and said[0] in PROTOCOL_REFUSALS:
        return said
    text = f"{origin} answered {status}{': ' + said[1] if said else ''}"
    return REFUSED if status in _NOT_PROCESSED or status < 400 else FAILED, text


async def _read(response: httpx2.Response) -> bytes | None:
    chunks: list[bytes] = []
    size = 0
    source: AsyncIterable[bytes] = response.aiter_bytes()
    if "content-encoding" not in response.headers and isinstance(response.stream, httpx2.AsyncByteStream):
        source = response.stream  # it comes as it is: nothing to take it through
    async for chunk in source:
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _json_rpc_error(body: bytes) -> tuple[int, str] | None:
    try:
        error: Any = json.loads(body).get("error")
    except (ValueError, AttributeError):
        return None
    if not isinstance(error, dict) or not isinstance(error.get("code"), int):
        return None
    return error["code"], str(error.get("message"))


def _failure(code: int, message: str, status: int | None = None) -> httpx2.Response:
    error = {"code": code, "message": message, "data": {"status": status}}
    document = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    return httpx2.Response(502, headers={"content-type": "application/json"}, content=document)


def _origin(request: httpx2.Request) -> str:
    return f"{request.url.scheme}://{request.url.host}:{request.url.port or ''}".rstrip(":")
