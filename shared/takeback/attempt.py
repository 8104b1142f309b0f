"""A POST that carries an ``Idempotency-Key``: the same one again gets what the first one made, and does nothing anew."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.requests import Request

from takeback import json
from takeback.auth import Caller
from takeback.errors import Problem, invalid

LONGEST_KEY = 255
KEPT = timedelta(days=7)
"""How long a key stands for what it made; the recorder's `append_v1.sql` says the same."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The key as it counts: per *sub* and *path*, beside the body that it came with."""

    sub: str
    path: str
    key: str
    body_hash: str

    @classmethod
    def of(cls, caller: Caller, path: str, key: str | None, body: Any) -> Attempt | None:
        """The attempt of a request with a parsed *body*, None without a *key*; raises `Problem` 422 for one of no use."""
        if key is None:
            return None
        if not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
            raise invalid(f"An Idempotency-Key is 1 to {LONGEST_KEY} printable characters.")
        return cls(caller.sub, path, key, hashlib.sha256(json.dumps(body)).hexdigest())

    @classmethod
    def in_request(cls, request: Request, caller: Caller, body: Any) -> Attempt | None:
        """The same, of an HTTP request."""
        return cls.of(caller, request.scope["path"], request.headers.get("idempotency-key"), body)

    @property
    def name(self) -> str:
        """32 hexadecimal digits: the same for the same key, whatever the body."""
        return _digest(self.sub, self.path, self.key)

    @property
    def seed(self) -> str:
        """32 hexadecimal digits: the same for the same key and body, so that ids made from it are, too."""
        return _digest(self.sub, self.path, self.key, self.body_hash)


def key_conflict() -> Problem:
    """The caller's key stands for another request."""
    return Problem(
        422,
        "idempotency-conflict",
        "This Idempotency-Key was used with another body. Nothing was changed or forwarded; use a new key for a new request.",
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
