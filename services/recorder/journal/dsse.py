"""Signed statements: DSSE envelopes with Ed25519, for anybody who holds the public key (J13)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from takeback import json


class BadSignature(Exception):
    """An envelope that this key did not sign, or that is no envelope; the message says which."""


class Signer:
    """Signs with the installation's ``signing.pem``."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = key.public_key()
        self._key_id = key_id(self.public_key)

    @classmethod
    def from_keys(cls, keys_dir: Path) -> Signer:
        """The signer of the installation whose keys are in *keys_dir*; raises ValueError for a key of another kind."""
        key = load_pem_private_key((keys_dir / "signing.pem").read_bytes(), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"{keys_dir / 'signing.pem'} holds no Ed25519 key")
        return cls(key)

    def sign(self, payload_type: str, statement: dict[str, Any]) -> dict[str, Any]:
        """The envelope of *statement*."""
        payload = json.dumps(statement)
        signature = self._key.sign(_pre_authentication(payload_type, payload))
        return {
            "payloadType": payload_type,
            "payload": b64encode(payload).decode(),
            "signatures": [{"keyid": self._key_id, "sig": b64encode(signature).decode()}],
        }


def opened(envelope: Any, payload_type: str, key: Ed25519PublicKey) -> dict[str, Any]:
    """The statement in *envelope*, once its signature by *key* has been checked; raises `BadSignature`."""
    try:
        kind = envelope["payloadType"]
        payload = b64decode(envelope["payload"], validate=True)
        (entry,) = envelope["signatures"]
        signer, signature = entry["keyid"], b64decode(entry["sig"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise BadSignature("it is not a DSSE envelope with one signature") from error
    if kind != payload_type:
        raise BadSignature(f"it signs {kind!r}, not {payload_type!r}")
    if signer != key_id(key):
        raise BadSignature(f"it was signed with another key ({signer}; this one is {key_id(key)})")
    try:
        key.verify(signature, _pre_authentication(kind, payload))
    except InvalidSignature as error:
        raise BadSignature("its signature does not fit what it says") from error
    statement = json.loads(payload)
    if not isinstance(statement, dict):
        raise BadSignature("it signs no statement")
    return statement


def key_id(key: Ed25519PublicKey) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the public key's 32 bytes."""
    return sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def public_key(path: Path) -> Ed25519PublicKey:
    """The public key in the PEM file *path*; raises ValueError for anything else, OSError when it cannot be read."""
    content = path.read_bytes()
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"{path} is not a PEM public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{path} holds no Ed25519 public key")
    return key


def _pre_authentication(payload_type: str, payload: bytes) -> bytes:
    return b"DSSEv1 %d %b %d %b" % (len(payload_type), payload_type.encode(), len(payload), payload)
