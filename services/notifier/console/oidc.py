"""Signing in at an OIDC issuer: the authorization code flow with PKCE (OpenID Connect Core 1.0, RFC 7636).

What the browser carries meanwhile (state, nonce, verifier, where to go back) is sealed in a cookie of ten minutes, so any
replica can finish what another one began.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from takeback import json
from takeback.auth import Verifier
from takeback.errors import Problem

_NONCE_BYTES = 12
_SECONDS = 10.0
_ALGORITHMS = ["RS256", "ES256", "EdDSA", "Ed25519"]


@dataclass(frozen=True, slots=True)
class Client:
    """The console as the issuer knows it. *key* seals the cookie; all replicas have the same one."""

    issuer: str
    client_id: str
    client_secret: str | None
    scopes: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Pending:
    """A sign-in that has begun."""

    state: str
    nonce: str
    verifier: str
    back: str
    began: float


class Issuer:
    """The issuer, found by its discovery document."""

    def __init__(self, client: Client, http: httpx.AsyncClient, verifier: Verifier) -> None:
        self._client = client
        self._http = http
        self._verifier = verifier
        self._found: dict[str, Any] | None = None

    def begin(self, back: str) -> Pending:
        """A new sign-in that ends at *back*."""
        return Pending(
            secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48), back, time.time()
        )

    async def address(self, pending: Pending, callback: str) -> str:
        """Where the browser goes to sign in."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": callback,
            "scope": self._client.scopes,
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = (await self._discovered())["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def token(self, pending: Pending, answer: Mapping[str, str], callback: str) -> str:
        """The token by which the API knows the person: the access token where it is a JWT for it, else the id token."""
        if "error" in answer:
            raise _refused(f"the issuer says: {answer['error'][:100]}")
        if not hmac.compare_digest(answer.get("state", "").encode(), pending.state.encode()) or not answer.get("code"):
            raise _refused("the answer belongs to another sign-in")
        sent = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": callback,
            "client_id": self._client.client_id,
            "code_verifier": pending.verifier,
        }
        if self._client.client_secret:
            sent["client_secret"] = self._client.client_secret
        tokens = await self._asked("POST", (await self._discovered())["token_endpoint"], data=sent)
        await self._check_id_token(str(tokens.get("id_token", "")), pending)
        for token in (tokens.get("access_token"), tokens["id_token"]):
            if isinstance(token, str) and await self._counts(token):
                return token
        raise _refused("neither of its tokens is one that this installation's API takes (see TAKEBACK_OIDC_AUDIENCE)")

    def sealed(self, pending: Pending) -> str:
        """*pending* as a cookie that only this installation reads."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + AESGCM(self._client.key).encrypt(nonce, json.dumps(asdict(pending)), b"sign-in")
        return base64.urlsafe_b64encode(sealed).decode()

    def opened(self, cookie: str | None, seconds: float) -> Pending:
        """What *cookie* holds, unless it is older than *seconds*."""
        try:
            sealed = base64.urlsafe_b64decode((cookie or "").encode())
            opened = AESGCM(self._client.key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], b"sign-in")
            pending = Pending(**json.loads(opened))
        except (InvalidTag, ValueError, TypeError) as error:
            raise _refused("this browser has not begun one, or began it too long ago") from error
        if time.time() - pending.began > seconds:
            raise _refused("it took too long")
        return pending

    async def _check_id_token(self, id_token: str, pending: Pending) -> None:
        keys = KeySet.import_key_set(await self._asked("GET", (await self._discovered())["jwks_uri"]))  # type: ignore[arg-type]
        claims = jwt.JWTClaimsRegistry(
            None, 60,
            iss={"essential": True, "value": self._client.issuer},
            aud={"essential": True, "value": self._client.client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": pending.nonce},
        )  # fmt: skip
        try:
            claims.validate(jwt.decode(id_token, keys, algorithms=_ALGORITHMS).claims)
        except (JoseError, ValueError) as error:
            raise _refused(f"its id token does not count: {error}") from error

    async def _counts(self, token: str) -> bool:
        try:
            await self._verifier.caller(f"Bearer {token}")
        except Problem as problem:
            if problem.status != 401:
                raise
            return False
        return True

    async def _discovered(self) -> dict[str, Any]:
        if self._found is None:
            self._found = await self._asked(
                "GET", f"{self._client.issuer.rstrip('/')}/.well-known/openid-configuration"
            )
        return self._found

    async def _asked(self, method: str, url: str, **how: Any) -> dict[str, Any]:
        try:
            response = await self._http.request(method, url, timeout=_SECONDS, follow_redirects=False, **how)
            response.raise_for_status()
            document: dict[str, Any] = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise Problem(
                503, "issuer-unavailable", "The place where people sign in does not answer as it should. Try again."
            ) from error
        return document


def _refused(why: str) -> Problem:
    return Problem(403, "sign-in-failed", f"Signing in did not work: {why}. Nothing was changed; begin again.")
