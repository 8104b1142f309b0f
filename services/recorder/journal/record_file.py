"""A Run Record as a file: one line of JSON for each record, then the signed head. Pure: writing lines and reading them.

Each line is the JSON with sorted keys and no spaces that `takeback.json.dumps` writes; the body is base64 of the exact
bytes that were hashed. Any other spelling of the same values is refused, so that no byte of the file can change unseen.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recorder.journal.chain import FORMAT_VERSION, Record, instant, record_hash
from takeback import json

PAYLOAD_TYPE = "application/vnd.takeback.run-record+json"

_FIELDS = ("at", "body", "campaign", "hash", "id", "previousHash", "seq", "stream", "type")


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One record as its line says."""

    stream: str
    seq: int
    id: str
    campaign: str
    type: str
    at: str
    previous_hash: str
    hash: str
    body: bytes

    def computed_hash(self) -> str:
        """The hash that the line must state."""
        return record_hash(
            previous=bytes.fromhex(self.previous_hash),
            campaign=self.campaign,
            stream=self.stream,
            seq=self.seq,
            id_=self.id,
            type_=self.type,
            at=self.at,
            body=self.body,
        ).hex()


def line_of(record: Record) -> bytes:
    """*record* as its line, without the line's end."""
    return json.dumps(
        {
            "stream": record.stream,
            "seq": record.seq,
            "id": record.id,
            "campaign": record.campaign,
            "type": record.type,
            "at": instant(record.at),
            "previousHash": record.previous_hash.hex(),
            "hash": record.hash.hex(),
            "body": b64encode(record.body).decode(),
        }
    )


def head_of(*, stream: str, campaign: str, seq: int, hash_: str, closed: bool, exported_at: datetime) -> dict[str, Any]:
    """What is signed: how far the stream goes and what its last hash is; everything before follows from that."""
    return {
        "formatVersion": FORMAT_VERSION,
        "stream": stream,
        "campaign": campaign,
        "seq": seq,
        "hash": hash_,
        "records": seq,
        "closed": closed,
        "exportedAt": instant(exported_at),
    }


def parse_line(line: bytes) -> RecordLine:
    """The record that *line* holds; raises ValueError that says what is wrong with the line itself."""
    value = _object(line)
    if tuple(sorted(value)) != _FIELDS:
        raise ValueError("it is not a record")
    texts = [value[name] for name in _FIELDS if name != "seq"]
    if not all(isinstance(text, str) for text in texts) or type(value["seq"]) is not int:
        raise ValueError("a field has the wrong type")
    for name in ("hash", "previousHash"):
        if len(value[name]) != 64 or bytes.fromhex(value[name]).hex() != value[name]:
            raise ValueError(f"its {name} is not a hash")
    body = b64decode(value["body"], validate=True)
    if b64encode(body).decode() != value["body"]:
        raise ValueError("its body is not written as it was exported")
    return RecordLine(
        value["stream"],
        value["seq"],
        value["id"],
        value["campaign"],
        value["type"],
        value["at"],
        value["previousHash"],
        value["hash"],
        body,
    )


def parse_envelope(line: bytes) -> dict[str, Any]:
    """The envelope that *line* holds; raises ValueError."""
    value = _object(line)
    if "payloadType" not in value:
        raise ValueError("it is not a signed head")
    try:
        texts = [value["payload"], *(entry["sig"] for entry in value["signatures"])]
        as_exported = all(b64encode(b64decode(text, validate=True)).decode() == text for text in texts)
    except (KeyError, TypeError) as error:
        raise ValueError("it is not a signed head") from error
    if not as_exported:
        raise ValueError("it is not written as it was exported")
    return value


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ValueError("it is not JSON") from error
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    if json.dumps(value) != line:
        raise ValueError("it is not written as it was exported")
    return value
