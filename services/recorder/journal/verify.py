"""Verifying a Run Record offline: pure (J13). Whoever holds the file and the public key can do it, and needs nothing else.

The signed head names the last hash, and each record names the one before it: so the genuine records are found from the head
backwards, and the first line that is not the genuine record of its place is the one that is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from recorder.journal.chain import GENESIS
from recorder.journal.dsse import BadSignature, opened
from recorder.journal.record_file import PAYLOAD_TYPE, RecordLine, parse_envelope, parse_line


@dataclass(frozen=True, slots=True)
class Verified:
    """The record is whole and as it was signed. *head* is the signed statement."""

    head: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Broken:
    """The first bad record: its line in the file (from 1), its seq and id as far as they are known, and what is wrong."""

    line: int
    seq: int | None
    id: str | None
    what: str

    def __str__(self) -> str:
        seq = "" if self.seq is None else f", record {self.seq}"
        named = "" if self.id is None else f" ({self.id})"
        return f"line {self.line}{seq}{named}: {self.what}"


def verify(content: bytes, key: Ed25519PublicKey) -> Verified | Broken:
    """Whether *content* is a whole Run Record signed with the other half of *key*, or the first record that is not."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
        ended = True
    else:
        ended = False
    records: list[RecordLine | str] = []
    for line in lines[:-1]:
        try:
            records.append(parse_line(line))
        except ValueError as error:
            records.append(str(error))
    head, complaint = _head(lines[-1] if lines else b"", key)
    if head is None and lines:
        # The last line may be a record: then the head is what is missing.
        try:
            records.append(parse_line(lines[-1]))
        except ValueError:
            pass
        else:
            complaint = "the signed head is missing: the end of the file was cut off"
    found = _first_bad(records, head)
    if found is not None:
        return found
    if head is None:
        last = len(records) + 1
        return Broken(last, None, None, complaint)
    if not ended:
        return Broken(len(lines), None, None, "the file does not end with a line's end")
    return Verified(head)


def _head(line: bytes, key: Ed25519PublicKey) -> tuple[dict[str, Any] | None, str]:
    try:
        return opened(parse_envelope(line), PAYLOAD_TYPE, key), ""
    except BadSignature as error:
        return None, f"the signed head does not verify: {error}"
    except ValueError as error:
        return None, f"the signed head cannot be read: {error}"


def _first_bad(records: list[RecordLine | str], head: dict[str, Any] | None) -> Broken | None:
    genuine = _genuine(records, head)
    first = next((record for record in records if isinstance(record, RecordLine)), None)
    stream = head["stream"] if head else first.stream if first else None
    campaign = head["campaign"] if head else first.campaign if first else None
    previous = GENESIS.hex()
    for index, record in enumerate(records):
        line, seq = index + 1, index + 1
        if isinstance(record, str):
            return Broken(line, seq, None, f"the line was changed: {record}")
        if index in genuine and record.seq == seq and index > 0 and record.previous_hash != previous:
            # This record is what was signed, so it is the one before it that is not.
            before = records[index - 1]
            assert isinstance(before, RecordLine)
            return Broken(
                line - 1, before.seq, before.id, "it is not the record that the signed record after it continues from"
            )
        wrong = _wrong(record, seq, previous, stream, campaign)
        if wrong is None and genuine and 0 in genuine.values() and index not in genuine:
            wrong = "it was put in: it is no part of the signed chain"
        if wrong is not None:
            return Broken(
                line, seq if record.seq > seq else record.seq, record.id if record.seq <= seq else None, wrong
            )
        previous = record.hash
    return None if head is None else _end(records, head, previous)


def _end(records: list[RecordLine | str], head: dict[str, Any], last_hash: str) -> Broken | None:
    count = len(records)
    if head["seq"] != count or head["records"] != count:
        missing = count + 1
        return Broken(
            missing, missing, None, f"it is missing: the tail was cut off, the signed head goes to {head['seq']}"
        )
    if head["hash"] != last_hash:
        last = records[-1]
        assert isinstance(last, RecordLine)
        return Broken(count, last.seq, last.id, "its hash is not the one that was signed")
    return None


def _wrong(record: RecordLine, seq: int, previous: str, stream: str | None, campaign: str | None) -> str | None:
    if (record.stream, record.campaign) != (stream, campaign):
        return f"it belongs to another stream or campaign ({record.stream} of {record.campaign}, not {stream} of {campaign})"
    if record.seq > seq:
        return f"it is missing: record {record.seq} ({record.id}) stands in its place"
    if record.seq < seq:
        return f"it stands where record {seq} should: put in, repeated or out of order"
    if record.computed_hash() != record.hash:
        return "it was changed: its hash does not fit what it says"
    if record.previous_hash != previous:
        return "it does not continue from the record before it"
    return None


def _genuine(records: list[RecordLine | str], head: dict[str, Any] | None) -> dict[int, int]:
    """Which lines hold what was signed, from the head backwards: index of the line → how many records come before it."""
    if head is None:
        return {}
    by_hash = {
        record.hash: index
        for index, record in enumerate(records)
        if isinstance(record, RecordLine) and record.computed_hash() == record.hash
    }
    genuine: dict[int, int] = {}
    wanted, before = head["hash"], head["seq"] - 1
    while wanted in by_hash and before >= 0:
        index = by_hash[wanted]
        record = records[index]
        assert isinstance(record, RecordLine)
        genuine[index] = before
        wanted, before = record.previous_hash, before - 1
    return genuine
