"""Who is signed in: a random secret in a cookie, and a row that only this secret opens.

The row keeps the person's token, because the console asks the HTTP API on their behalf. It is sealed with a key that is
derived from the secret, so neither the table nor a backup of it signs anybody in.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from takeback.auth import Caller, Verifier
from takeback.errors import Problem

_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in person. *secret* is the cookie's value, *csrf* what every form of theirs carries."""

    secret: str
    sub: str
    token: str

    @property
    def csrf(self) -> str:
        """Follows from the secret, which no other site can read."""
        return _derived(self.secret, b"csrf").hex()


class Sessions:
    """The table of sessions."""

    def __init__(self, pool: asyncpg.Pool, verifier: Verifier, lifetime_seconds: float) -> None:
        self._pool = pool
        self._verifier = verifier
        self._lifetime_seconds = lifetime_seconds

    async def open(self, token: str) -> Session:
        """A session for the person whom *token* names. Raises `Problem` 401, and 403 for a token that is no person's."""
        caller = await self._caller(token)
        if not caller.is_human:
            raise Problem(
                403,
                "human-required",
                f"This is the token of an {caller.kind}. The console is for people; nothing happened.",
            )
        session = Session(secrets.token_urlsafe(32), caller.sub, token)
        await self._pool.execute(
            "insert into sessions (session_hash, token, sub, expires_at) "
            "values ($1, $2, $3, now() + make_interval(secs => $4))",
            _hash(session.secret), _seal(session.secret, token), caller.sub, self._lifetime_seconds,
        )  # fmt: skip
        return session

    async def find(self, secret: str | None) -> Session | None:
        """The session of a cookie; None when it is unknown or over, or its token does not count any more."""
        if not secret:
            return None
        row = await self._pool.fetchrow(
            "select token, sub, expires_at from sessions where session_hash = $1", _hash(secret)
        )
        if row is None or row["expires_at"] < datetime.now(UTC):
            return None
        token = _unseal(secret, row["token"])
        try:
            caller = await self._caller(token)
        except Problem as problem:
            if problem.status == 401:
                return None
            raise
        return Session(secret, caller.sub, token)

    async def close(self, session: Session) -> None:
        """Signs out: the cookie opens nothing any more."""
        await self._pool.execute("delete from sessions where session_hash = $1", _hash(session.secret))

    async def trim(self) -> None:
        """Lets go of sessions that are over."""
        await self._pool.execute("delete from sessions where expires_at < now()")

    async def _caller(self, token: str) -> Caller:
        return await self._verifier.caller(f"Bearer {token}")


def _derived(secret: str, purpose: bytes) -> bytes:
    return hmac.digest(secret.encode("utf-8", "surrogatepass"), b"takeback console " + purpose, "sha256")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _seal(secret: str, token: str) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(_derived(secret, b"token")).encrypt(nonce, token.encode(), None)


def _unseal(secret: str, sealed: bytes) -> str:
    cipher = AESGCM(_derived(secret, b"token"))
    return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None).decode()
