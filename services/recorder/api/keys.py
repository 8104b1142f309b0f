"""The caller's Idempotency-Key on a POST (contract.md): per sub and path, kept seven days with the body's hash."""

from __future__ import annotations

import hashlib

from starlette.requests import Request

from recorder.journal import Idempotency
from takeback import json
from takeback.auth import Caller
from takeback.errors import invalid

_LONGEST_KEY = 255


def claim_in(request: Request, caller: Caller, body: object) -> Idempotency | None:
    """The claim that the request's key makes, None without one; what it stands for is filled in by whoever writes it.

    Raises `Problem` 422 for a key that cannot be kept.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
        raise invalid(f"An Idempotency-Key is 1 to {_LONGEST_KEY} printable characters.")
    return Idempotency(caller.sub, request.url.path, key, hashlib.sha256(json.dumps(body)).hexdigest(), "")
