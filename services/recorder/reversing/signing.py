"""Signing a Reversal Record, so that anybody with the public key can check it (G10): DSSE with Ed25519."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from takeback import json
from takeback.messages.plan import ReversalRecord

PAYLOAD_TYPE = "application/vnd.takeback.reversal-record+json"


class RecordSigner:
    """Signs with the installation's ``signing.pem``."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.key_id = sha256(raw).hexdigest()[:16]

    @classmethod
    def from_keys(cls, keys_dir: Path) -> RecordSigner:
        """The signer of the installation whose keys are in *keys_dir*; raises ValueError for a key of another kind."""
        key = load_pem_private_key((keys_dir / "signing.pem").read_bytes(), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("signing.pem holds no Ed25519 key")
        return cls(key)

    def signed(self, record: ReversalRecord) -> ReversalRecord:
        """*record* with its signature: a DSSE envelope whose payload is the record without it."""
        payload = json.dumps(record.model_copy(update={"signature": None}).wire())
        signature = self._key.sign(_pre_authentication(PAYLOAD_TYPE, payload))
        envelope: dict[str, Any] = {
            "payloadType": PAYLOAD_TYPE,
            "payload": b64encode(payload).decode(),
            "signatures": [{"keyid": self.key_id, "sig": b64encode(signature).decode()}],
        }
        return record.model_copy(update={"signature": envelope})


def is_genuine(record: ReversalRecord, key: Ed25519PublicKey) -> bool:
    """Whether *record* says exactly what was signed with the other half of *key*."""
    try:
        envelope = record.signature
        payload = b64decode(envelope["payload"], validate=True)
        signature = b64decode(envelope["signatures"][0]["sig"], validate=True)
        key.verify(signature, _pre_authentication(envelope["payloadType"], payload))
    except (InvalidSignature, KeyError, IndexError, TypeError, ValueError):
        return False
    return payload == json.dumps(record.model_copy(update={"signature": None}).wire())


def _pre_authentication(payload_type: str, payload: bytes) -> bytes:
    return b"DSSEv1 %d %b %d %b" % (len(payload_type), payload_type.encode(), len(payload), payload)
