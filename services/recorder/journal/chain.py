"""The hash chain of a stream: pure (J13).

``hash = sha256(previous hash ‖ header ‖ sha256(body))``. The header is the format version, campaign, stream, seq, id, type and
database time, each as a 4-byte big-endian length and UTF-8 bytes. The body is hashed as it was stored, never serialized anew.
`append_v1.sql` and `append_step_v1.sql` compute the same inside the database; tests hold them together.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

FORMAT_VERSION = "1"
GENESIS = bytes(32)
"""The previous hash of a stream's first record."""


class Record(NamedTuple):
    """One record of the journal as it is stored. *at* is the database's time; *after* the previous published seq."""

    stream: str
    seq: int
    id: str
    campaign: str
    type: str
    at: datetime
    previous_hash: bytes
    hash: bytes
    body: bytes
    entry: str | None = None
    label: int | None = None
    after: int | None = None
    published: bool = False


def record_hash(
    previous: bytes, campaign: str, stream: str, seq: int, id_: str, type_: str, at: str, body: bytes
) -> bytes:
    """The hash of one record; *at* is written as `instant` writes it."""
    parts = (FORMAT_VERSION, campaign, stream, str(seq), id_, type_, at)
    header = b"".join(len(part).to_bytes(4, "big") + part for part in (text.encode() for text in parts))
    return sha256(previous + header + sha256(body).digest()).digest()


def hash_of(record: Record) -> bytes:
    """The hash that *record* must carry, given its previous hash."""
    return record_hash(
        record.previous_hash,
        record.campaign,
        record.stream,
        record.seq,
        record.id,
        record.type,
        instant(record.at),
        record.body,
    )


@lru_cache(maxsize=4096)
def instant(at: datetime) -> str:
    """*at* as ISO 8601 in UTC with six digits and Z."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
