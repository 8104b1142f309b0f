"""One MCP message as it came over HTTP, in either era of the protocol. Pure: no I/O, and nothing is remembered."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers

from takeback import json
from takeback.errors import Problem

Json = dict[str, Any]
RequestId = int | str
SESSION_HEADER: Final = "mcp-session-id"


class Rejected(Exception):
    """A message that is answered with a JSON-RPC error; *status* is HTTP's, *of* the request's id."""

    def __init__(self, code: int, message: str, data: Any = None, *, of: RequestId | None = None, status: int = 200):
        super().__init__(message)
        self.code, self.message, self.data, self.of, self.status = code, message, data, of, status


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request. *modern*: it is of the 2026-07-28 era, which has no sessions and says everything in each request.

    *links*: the client can show its user a link (URL-mode elicitation). *streams*: it takes a stream for an answer.
    """

    id: RequestId
    method: str
    params: Json
    modern: bool
    links: bool
    streams: bool
    session: str | None = None

    @property
    def meta(self) -> Json:
        """The request's ``_meta``."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def progress_token(self) -> RequestId | None:
        """What the client wants progress to be told under."""
        token = self.meta.get("progressToken")
        return token if isinstance(token, (int, str)) and not isinstance(token, bool) else None

    def rejected(self, code: int, message: str, data: Any = None) -> Rejected:
        """The JSON-RPC error that answers this request."""
        return Rejected(code, message, data, of=self.id, status=self._status(code))

    def rejected_as(self, error: Json) -> Rejected:
        """The error that a tool server answered, as it came."""
        return self.rejected(error["code"], error["message"], error.get("data"))

    def _status(self, code: int) -> int:
        return ERROR_CODE_HTTP_STATUS.get(code, 200) if self.modern else 200


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification, or an answer of the client's to a request of ours: nothing is owed for it."""

    method: str | None
    params: Json
    session: str | None


def read(body: bytes, headers: Headers) -> Exchange | Notice:
    """The message in a POST; raises `Rejected` for what is none."""
    try:
        message = json.parse(body)
    except Problem as problem:
        raise Rejected(types.PARSE_ERROR, problem.detail, status=400) from problem
    session = headers.get(SESSION_HEADER)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Rejected(types.INVALID_REQUEST, "The body is not one JSON-RPC 2.0 message", status=400)
    method, id_, params = message.get("method"), message.get("id"), message.get("params", {})
    if not isinstance(params, dict):
        raise Rejected(types.INVALID_REQUEST, "params must be an object", status=400)
    if method is None or "id" not in message:
        return Notice(method if isinstance(method, str) else None, params, session)
    if not isinstance(method, str) or not isinstance(id_, (int, str)) or isinstance(id_, bool):
        raise Rejected(types.INVALID_REQUEST, "A request has a method and an id", status=400)
    streams = "text/event-stream" in headers.get("accept", "")
    version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
    if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS:
        return Exchange(id_, method, params, False, _session_links(session), streams, session)
    return Exchange(id_, method, params, True, _links(_modern(message, id_, headers)), streams)


def new_session(initialize: Mapping[str, Any]) -> str:
    """The id of a 2025-11-25 session. It names nobody and is stored nowhere: it carries what the client can do.

    So that any replica knows whether it may send a link. A client that forges it lies about itself only.
    """
    return f"{'links' if _links(initialize.get('capabilities')) else 'plain'}.{secrets.token_urlsafe(16)}"


def _session_links(session: str | None) -> bool:
    return session is not None and session.startswith("links.")


def _links(capabilities: Any) -> bool:
    elicitation = capabilities.get("elicitation") if isinstance(capabilities, Mapping) else None
    return isinstance(elicitation, Mapping) and elicitation.get("url") is not None


def _modern(message: Json, id_: RequestId, headers: Headers) -> Any:
    """What the client says it can do; raises `Rejected` where headers and body are not as the era wants them."""
    items = headers.items()
    doubled = find_duplicated_routing_header(items)
    if doubled is not None:
        raise Rejected(types.HEADER_MISMATCH, f"{doubled} header appears more than once", of=id_, status=400)
    route = classify_inbound_request(message, headers=dict(items))
    if isinstance(route, InboundLadderRejection):
        status = ERROR_CODE_HTTP_STATUS.get(route.code, 400)
        raise Rejected(route.code, route.message, route.data, of=id_, status=status)
    return route.client_capabilities
