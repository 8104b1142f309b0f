"""A plain HTTP server as a tool server: its manifest says which requests its operations are."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

import httpx
import orjson

from recorder.manifest import Manifest, expressions
from recorder.manifest.expressions import ExpressionFailed
from recorder.manifest.model import HttpRequest
from recorder.manifest.model import Operation as Manifested
from recorder.toolport import secrets
from recorder.toolport.http_target import PinnedTransport, Target, pinned_address
from recorder.toolport.looking import HTTP, body_of
from recorder.toolport.port import (
    Description,
    NoAnswer,
    NotSent,
    Operation,
    Outcome,
    Preview,
    ToolRefused,
    Unsupported,
    clause,
    pin_of,
)
from takeback.errors import words_of
from takeback.extension import Declared, Observation, RequestMeta, UndoAnswer, UndoRequest

Json = dict[str, Any]
_MOST_BYTES: Final = 16 * 1_048_576
_OWN_HEADERS: Final = frozenset(
    ("host", "content-length", "connection", "transfer-encoding", "upgrade", "te", "trailer")
)
_KEPT_OUT: Final = frozenset(("set-cookie", "www-authenticate", "proxy-authenticate"))


def http_port(config: Mapping[str, Any], manifest: Manifest, environ: Mapping[str, str]) -> HttpTool:
    """The port to the server at ``config["url"]``. Raises `ToolRefused` for a URL or headers that may not be used."""
    headers = config.get("headers") or {}
    secrets.check_headers(headers, environ, config["url"])
    allow_private = environ.get("TAKEBACK_HTTP_ALLOW_PRIVATE") == "1"
    return HttpTool(Target.of(config["url"]), headers, manifest, environ, allow_private=allow_private)


class HttpTool:
    """A `ToolPort` over plain HTTP. Never follows a redirect; the address is looked up once and kept."""

    def __init__(
        self,
        target: Target,
        headers: Mapping[str, str],
        manifest: Manifest,
        environ: Mapping[str, str],
        *,
        allow_private: bool,
    ) -> None:
        self._target = target
        self._headers = headers
        self._operations = manifest.operations
        self._name = manifest.server or target.host
        self._environ = environ
        self._allow_private = allow_private
        self._client: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def describe(self, *, deadline: float) -> Description:
        async with asyncio.timeout(deadline):
            await self._open()
        info = {"name": self._name, "version": ""}
        operations = [_described(name, operation) for name, operation in self._operations.items()]
        return Description(self._name, "", operations, info=info)

    async def call(self, operation: str, arguments: Json, meta: RequestMeta, *, deadline: float) -> Outcome:
        wanted = self._operations.get(operation)
        if wanted is None or wanted.request is None:
            raise ToolRefused(f"{self._name} has no operation {operation}. Nothing was sent.")
        client = await self._open()
        request = self._request(client, wanted.request, arguments, meta.idempotency_key or "")
        return await self._send(client, request, deadline)

    async def preview(self, operation: str, arguments: Json, *, deadline: float) -> Preview:  # noqa: ARG002
        raise Unsupported(f"{self._name} has no dry run. Nothing was sent.")

    async def observe(self, resource: str | None, *, entry: str | None = None, deadline: float) -> Observation:  # noqa: ARG002
        raise Unsupported(f"{resource} is no record of {self._name}'s manifest. Nothing was sent.")

    async def undo(self, request: UndoRequest, *, deadline: float) -> UndoAnswer:  # noqa: ARG002
        raise Unsupported(f"{self._name} has no undo of its own. Nothing was sent.")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _open(self) -> httpx.AsyncClient:
        async with self._opening:
            if self._client is None:
                address = await pinned_address(self._target, allow_private=self._allow_private)
                self._client = httpx.AsyncClient(
                    transport=PinnedTransport(self._target, address),
                    timeout=httpx.Timeout(None, connect=5.0, pool=5.0),
                    follow_redirects=False,
                    trust_env=False,
                )
            return self._client

    def _request(self, client: httpx.AsyncClient, spec: HttpRequest, arguments: Json, key: str) -> httpx.Request:
        scope = {"arguments": arguments}
        try:
            path = _path(spec.path, scope)
            query = {
                name: _text(value) for name, value in expressions.fill(spec.query, scope).items() if value is not None
            }
            given = {
                name: _text(value) for name, value in expressions.fill(spec.headers, scope).items() if value is not None
            }
            content, kind = _body(spec, scope)
        except ExpressionFailed as error:
            raise ToolRefused(f"The request could not be made: {clause(error)}. Nothing was sent.") from error
        headers = {name: value for name, value in given.items() if name.lower() not in _OWN_HEADERS}
        if kind is not None and "content-type" not in {name.lower() for name in headers}:
            headers["Content-Type"] = kind
        if spec.method == "POST" and key.startswith("ent_"):
            headers.setdefault("Idempotency-Key", key)
        headers |= secrets.resolve(self._headers, self._environ, self._target.origin)
        try:
            return client.build_request(
                spec.method, self._target.origin + self._target.path + path, params=query or None,
                headers=headers, content=content,
            )  # fmt: skip
        except (httpx.InvalidURL, ValueError, UnicodeError) as error:
            raise ToolRefused(f"The request could not be made: {clause(error)}. Nothing was sent.") from error

    async def _send(self, client: httpx.AsyncClient, request: httpx.Request, deadline: float) -> Outcome:
        try:
            async with asyncio.timeout(deadline):
                response = await client.send(request, stream=True)
                try:
                    content = await _read(response)
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotSent(f"No connection to {self._target.origin}: {clause(error)}. Nothing was sent.") from error
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:
            raise ToolRefused(f"The request could not be made: {clause(error)}. Nothing was sent.") from error
        except httpx.HTTPError as error:
            raise NoAnswer(f"{self._target.origin} gave no answer: {clause(words_of(error))}.") from error
        except TimeoutError as error:
            raise NoAnswer(f"{self._target.origin} did not answer in time.") from error
        if content is None:
            raise NoAnswer(f"The answer of {self._target.origin} is larger than {_MOST_BYTES} bytes.")
        result = _result(response, content)
        return Outcome(result, None, result["isError"])


def _described(name: str, operation: Manifested) -> Operation:
    definition: Json = {
        "name": name,
        "description": operation.description or "",
        "inputSchema": operation.input or {"type": "object"},
        "annotations": {"readOnlyHint": operation.only_reads},
    }
    return Operation(
        name, definition["description"], definition["inputSchema"], Declared(), definition, pin_of(definition)
    )


def _path(template: str, scope: Mapping[str, Any]) -> str:
    """The path, each value one segment or, with ``${+…}``, several; never one that climbs."""
    marked = template.replace("${+", "${'+' + ")

    def encode(value: Any, source: str) -> str:
        text = expressions.plain_text(value, source)
        if source.startswith("'+' + "):
            return quote(text[1:].lstrip("/"), safe="/")
        if not text:
            raise ExpressionFailed(source, "an empty value is no segment of a path")
        return quote(text, safe="")

    path = expressions.fill_text(marked, scope, encode)
    if any(unquote(part) in (".", "..") for part in path.split("/")):
        raise ExpressionFailed(template, "the path leads out of where it belongs")
    return path


def _body(spec: HttpRequest, scope: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
    if "json_" in spec.model_fields_set:
        return orjson.dumps(expressions.fill(spec.json_, scope)), "application/json"
    if "text" in spec.model_fields_set:
        return _text(expressions.fill(spec.text, scope)).encode(), "text/plain; charset=utf-8"
    if "base64" in spec.model_fields_set:
        try:
            return base64.b64decode(
                _text(expressions.fill(spec.base64, scope)), validate=True
            ), "application/octet-stream"
        except binascii.Error as error:
            raise ExpressionFailed(str(spec.base64), "it is no base64") from error
    return None, None


def _text(value: Any) -> str:
    return expressions.plain_text(value, "the request")


async def _read(response: httpx.Response) -> bytes | None:
    chunks, size = [], 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > _MOST_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _result(response: httpx.Response, content: bytes) -> Json:
    """The answer as an MCP result; what only expressions need stands beside it (`looking.view_of`)."""
    kind = response.headers.get("content-type", "")
    try:
        text: str | None = content.decode()
    except UnicodeDecodeError:
        text = None
    said = text if text is not None else f"{len(content)} bytes of {kind or 'no known kind'}"
    headers = {name: value for name, value in response.headers.items() if name not in _KEPT_OUT}
    http: Json = {"status": response.status_code, "headers": headers, "base64": None}
    if text is None:
        http["base64"] = base64.b64encode(content).decode()
    result: Json = {
        "content": [{"type": "text", "text": said}] if said else [],
        "isError": response.status_code >= 300,
        "_meta": {HTTP: http},
    }
    body = body_of(said, kind) if text is not None else None
    if isinstance(body, dict):
        result["structuredContent"] = body
    return result
