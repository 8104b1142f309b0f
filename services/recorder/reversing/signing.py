"""Signing a Reversal Record, so that anybody with the public key can check it, offline (G10). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from recorder.journal.dsse import Signer, opened
from takeback.messages.plan import ReversalRecord

PAYLOAD_TYPE: Final = "application/vnd.takeback.reversal-record+json"
_SIGNATURE: Final = "signature"


def signed(record: ReversalRecord, signer: Signer) -> ReversalRecord:
    """*record* with its signature: a DSSE envelope whose payload is the record without it."""
    unsigned = record.model_copy(update={_SIGNATURE: None})
    return record.model_copy(update={_SIGNATURE: signer.sign(PAYLOAD_TYPE, unsigned.wire())})


def not_as_signed(document: Mapping[str, Any], key: Ed25519PublicKey) -> list[str]:
    """The members of a Reversal Record on the wire that are not what was signed with the other half of *key*.

    Raises `BadSignature` where nothing was.
    """
    statement = opened(document.get(_SIGNATURE), PAYLOAD_TYPE, key)
    # A service of a later version tells members that were not known when it was signed, at their defaults.
    told = ReversalRecord.model_validate(statement).wire()
    names = (statement.keys() | document.keys()) - {_SIGNATURE}
    return sorted(
        name
        for name in names
        if name not in document or not any(name in said and document[name] == said[name] for said in (statement, told))
    )
