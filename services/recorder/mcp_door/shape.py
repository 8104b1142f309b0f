"""The wire form of answers in each era: what a 2026-07-28 result must say, and what a 2025-11-25 one never said. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

import mcp_types as types

from recorder.mcp_door.exchange import Exchange, Json, Rejected
from takeback import json
from takeback.extension import EXTENSION

OURSELVES: Final[Json] = {"name": "takeback", "title": "Takeback", "version": version("takeback")}
TOOL_CALL: Final = "tools/call"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call has no result: *text* for whoever made it, *told* for programs, *code* where it has to be JSON-RPC's."""

    text: str
    told: Mapping[str, object]
    code: int = types.INTERNAL_ERROR

    @property
    def result(self) -> Json:
        """The refusal as a tool's result, so that the model reads it."""
        return {"content": [{"type": "text", "text": self.text}], "isError": True, "_meta": {EXTENSION: {**self.told}}}


def answer(exchange: Exchange, told: Json | Refusal) -> Json:
    """The response to a call. A read has no result that is an error: that one is raised, as `Rejected`."""
    if exchange.method == TOOL_CALL:
        return response(exchange, told.result if isinstance(told, Refusal) else told)
    if isinstance(told, Refusal):
        raise exchange.rejected(told.code, told.text, {EXTENSION: {**told.told}})
    if told.keys() == {"error"}:
        raise exchange.rejected_as(told["error"])
    return response(exchange, listing(told))


def response(exchange: Exchange, result: Json, info: Json = OURSELVES) -> Json:
    """The JSON-RPC response; *info* says which server speaks where the result does not."""
    shaped = _modern(result, info) if exchange.modern else _legacy(result)
    return {"jsonrpc": "2.0", "id": exchange.id, "result": shaped}


def listing(result: Json) -> Json:
    """A list that is the caller's own and may change at any time: not to be kept by anybody (2026-07-28, caching)."""
    return {**result, "ttlMs": 0, "cacheScope": "private"}


def error(rejected: Rejected) -> Json:
    """The JSON-RPC error."""
    told: Json = {"code": rejected.code, "message": rejected.message}
    if rejected.data is not None:
        told["data"] = rejected.data
    return {"jsonrpc": "2.0", "id": rejected.of, "error": told}


def notification(method: str, params: Json) -> Json:
    """A message that wants no answer."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def frame(message: Json) -> bytes:
    """*message* as one server-sent event."""
    return b"event: message\r\ndata: " + json.dumps(message) + b"\r\n\r\n"


def _modern(result: Json, info: Json) -> Json:
    meta = result.get("_meta")
    if not isinstance(meta, dict):
        meta = {}
    if meta.get(types.SERVER_INFO_META_KEY) is None:
        meta = {**meta, types.SERVER_INFO_META_KEY: info}
    return {"resultType": "complete", **result, "_meta": meta}


def _legacy(result: Json) -> Json:
    kept = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    meta = kept.get("_meta")
    if isinstance(meta, dict) and types.SERVER_INFO_META_KEY in meta:
        kept["_meta"] = {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}
        if not kept["_meta"]:
            del kept["_meta"]
    return kept
