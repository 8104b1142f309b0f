"""The wire form of answers in each era: what a 2026-07-28 result must say, and what a 2025-11-25 one never said. Pure."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

import mcp_types as types

from recorder.mcp_door.exchange import Exchange, Json, Rejected
from takeback import json

OURSELVES: Final[Json] = {"name": "takeback", "title": "Takeback", "version": version("takeback")}


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
