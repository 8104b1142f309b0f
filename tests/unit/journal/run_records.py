"""Run Records made without a database, for tests of what is pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from recorder.journal.chain import GENESIS, Record, instant, record_hash
from recorder.journal.dsse import Signer
from recorder.journal.record_file import PAYLOAD_TYPE, head_of, line_of
from takeback import json

START = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))


def chained(bodies: list[bytes], stream: str = "run_1", campaign: str = "cmp_1") -> list[Record]:
    """Records with *bodies*, chained as the database chains them."""
    records: list[Record] = []
    previous = GENESIS
    for seq, body in enumerate(bodies, start=1):
        at = START + timedelta(seconds=seq)
        type_ = "run.opened" if seq == 1 else "entry.committed"
        hash_ = record_hash(
            previous=previous,
            campaign=campaign,
            stream=stream,
            seq=seq,
            id_=f"rec_{seq}",
            type_=type_,
            at=instant(at),
            body=body,
        )
        records.append(Record(stream, seq, f"rec_{seq}", campaign, type_, at, previous, hash_, body))
        previous = hash_
    return records


def exported(records: list[Record], signer: Signer = SIGNER) -> bytes:
    """The Run Record of *records*."""
    last = records[-1]
    head = head_of(
        stream=last.stream,
        campaign=last.campaign,
        seq=last.seq,
        hash_=last.hash.hex(),
        closed=True,
        exported_at=START + timedelta(hours=1),
    )
    lines = [line_of(record) for record in records] + [json.dumps(signer.sign(PAYLOAD_TYPE, head))]
    return b"\n".join(lines) + b"\n"
