"""From a record to what others may see of it: the CloudEvent, and the public entry. Pure.

The body of a record about an entry is a JSON object: ``{entry, host, matchable, resources, …, internal?}``. ``entry`` is the
contract's entry, with sealed values where there are secrets; ``internal`` never leaves the recorder. What only the database
knew when the body was written is filled in here: label and createdAt, and concludedAt of the record that concluded it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recorder.journal.chain import Record, instant
from takeback import json
from takeback.subjects import TYPE_PREFIX

UNCONCLUDED = frozenset({"awaiting_approval", "pending", "in_doubt"})
"""While an entry is in one of these, nobody knows yet how it ends."""


def document_of(record: Record, said: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The CloudEvent of a published record as its JSON document (contract.md, Bus). *said*: what its body says, if known."""
    body = body_of(record.body) if said is None else said
    data = _without_token(body) if _holds_one_token(record.body, body) else public_view(body)
    if record.entry is not None and isinstance(data.get("entry"), dict):
        data["entry"] = completed(
            data["entry"], record.label, record.at if record.label else None, concluded_at(data["entry"], record.at)
        )
    data |= {
        "stream": record.stream,
        "seq": record.seq,
        "after": record.after or 0,
        "hash": record.hash.hex(),
        "previousHash": record.previous_hash.hex(),
    }
    return {
        "specversion": "1.0",
        "id": record.id,
        "source": f"/campaigns/{record.campaign}",
        "type": TYPE_PREFIX + record.type,
        "subject": record.stream,
        "time": instant(record.at),
        "datacontenttype": "application/json",
        "data": data,
    }


def body_of(body: bytes) -> dict[str, Any]:
    """What a record's body says; raises ValueError for one that is no JSON object."""
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("the body of a record is a JSON object")
    return value


def public_view(body: Mapping[str, Any]) -> dict[str, Any]:
    """*body* without what never leaves the recorder: ``internal``, compensation tokens, and what is inside a seal (J18)."""
    return {key: _redacted(value) for key, value in body.items() if key not in {"internal", "compensationToken"}}


def completed(
    entry: dict[str, Any], label: int | None, created_at: datetime | None, concluded: datetime | None
) -> dict[str, Any]:
    """*entry* with the facts that the database gave it, where it does not carry them yet."""
    given: dict[str, Any] = {}
    if label is not None and not entry.get("label"):
        given["label"] = f"e{label}"
    if created_at is not None and not entry.get("createdAt"):
        given["createdAt"] = instant(created_at)
    if concluded is not None and not entry.get("concludedAt"):
        given["concludedAt"] = instant(concluded)
    return {**entry, **given}


def concluded_at(entry: dict[str, Any], at: datetime) -> datetime | None:
    """*at*, the time of the record at hand, if that record says how the entry ended."""
    return None if entry.get("status") in UNCONCLUDED else at


def _holds_one_token(written: bytes, body: Mapping[str, Any]) -> bool:
    """Whether the undo's token is the one secret in *body*: then there is no need to look at every value for more."""
    entry = body.get("entry")
    undo = entry.get("undo") if isinstance(entry, dict) else None
    token = undo.get("compensationToken") if isinstance(undo, dict) else None
    return (
        isinstance(token, dict)
        and token.keys() == {"sealed"}
        and written.count(b'"compensationToken"') == 1
        and written.count(b'"sealed"') == 1
    )


def _without_token(body: Mapping[str, Any]) -> dict[str, Any]:
    entry = body["entry"]
    undo = {key: value for key, value in entry["undo"].items() if key != "compensationToken"}
    return {**{key: value for key, value in body.items() if key != "internal"}, "entry": {**entry, "undo": undo}}


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get("sealed"), str):
            return {"sealed": True}
        return {key: _redacted(inner) for key, inner in value.items() if key != "compensationToken"}
    if isinstance(value, list | tuple):
        return [_redacted(inner) for inner in value]
    return value
