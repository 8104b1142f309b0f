"""The caller's Idempotency-Key on a POST (contract.md), as the journal keeps it: seven days, with the body's hash."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from recorder.journal import Idempotency
from takeback.attempt import Attempt
from takeback.auth import Caller


def claim_in(request: Request, caller: Caller, body: Any) -> Idempotency | None:
    """The claim that the request's key makes, None without one; what it stands for is filled in by whoever writes it.

    Raises `Problem` 422 for a key that cannot be kept.
    """
    attempt = Attempt.in_request(request, caller, body)
    return None if attempt is None else claim_of(attempt)


def claim_of(attempt: Attempt) -> Idempotency:
    """*attempt* as a claim that stands for nothing yet."""
    return Idempotency(attempt.sub, attempt.path, attempt.key, attempt.body_hash, "")
