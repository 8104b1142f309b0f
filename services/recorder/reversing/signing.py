"""Signing a Reversal Record, so that anybody with the public key can check it (G10)."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from recorder.journal.dsse import BadSignature, Signer, opened
from takeback.messages.plan import ReversalRecord

PAYLOAD_TYPE = "application/vnd.takeback.reversal-record+json"


def signed(record: ReversalRecord, signer: Signer) -> ReversalRecord:
    """*record* with its signature: a DSSE envelope whose payload is the record without it."""
    unsigned = record.model_copy(update={"signature": None})
    return record.model_copy(update={"signature": signer.sign(PAYLOAD_TYPE, unsigned.wire())})


def is_genuine(record: ReversalRecord, key: Ed25519PublicKey) -> bool:
    """Whether *record* says exactly what was signed with the other half of *key*."""
    try:
        statement = opened(record.signature, PAYLOAD_TYPE, key)
    except BadSignature:
        return False
    return statement == record.model_copy(update={"signature": None}).wire()
