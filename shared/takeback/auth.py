"""Who is asking: bearer tokens (RFC 7519) signed by the data folder's own key or by an OIDC issuer (contract.md)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
from joserfc import jwk, jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, OKPKey

from takeback.errors import Problem

Kind = Literal["human", "agent", "service"]
KINDS: tuple[Kind, ...] = ("human", "agent", "service")
_ALGORITHMS = ["EdDSA", "Ed25519", "RS256", "ES256"]
_CACHED_TOKENS = 10_000
_JWKS_SECONDS = 300.0
_ISSUER = "takeback"


@dataclass(frozen=True, slots=True)
class Caller:
    """A verified caller: *sub* names it, *kind* says whether a person, an agent or another system."""

    sub: str
    kind: Kind

    @property
    def is_human(self) -> bool:
        """Whether a person is asking: only a person decides (P10, S14)."""
        return self.kind == "human"


def issue_token(token_key: Path, sub: str, kind: Kind, lifetime_seconds: int = 30 * 86400) -> str:
    """A token for *sub*, signed with the PEM private key in *token_key*, valid for *lifetime_seconds*."""
    now = int(time.time())
    claims = {"sub": sub, "typ": kind, "iss": _ISSUER, "iat": now, "exp": now + lifetime_seconds}
    return jwt.encode({"alg": "Ed25519"}, claims, OKPKey.import_key(token_key.read_bytes()), algorithms=["Ed25519"])


class Verifier:
    """Verifies bearer tokens and remembers the verified ones until they expire.

    Either *token_key* (a PEM key, public or private) or *jwks_url* with *issuer* and *audience* says whose count. An issuer's
    token says by ``typ`` who is asking, or is a person's where it has the claim *person* (``auth_time``, or ``idtyp=user`` with
    its value): a program that logged in with its own credentials has a token of the same issuer, and decides nothing
    (P10, S14).
    """

    def __init__(
        self,
        *,
        token_key: Path | None = None,
        jwks_url: str | None = None,
        issuer: str | None = None,
        audience: str | None = None,
        person: str | None = None,
    ) -> None:
        if (token_key is None) == (jwks_url is None):
            raise ValueError("give either a token key or a JWKS URL")
        self._jwks_url = jwks_url
        self._person = person
        self._keys: Any = None if token_key is None else jwk.import_key(token_key.read_bytes(), "OKP")
        self._keys_until = float("inf") if token_key is not None else 0.0
        required: dict[str, Any] = {"sub": {"essential": True}, "exp": {"essential": True}}
        required["iss"] = {"essential": True, "value": issuer or _ISSUER}
        if audience:
            required["aud"] = {"essential": True, "value": audience}
        self._claims = jwt.JWTClaimsRegistry(None, 0, **required)
        self._seen: dict[str, tuple[Caller, float]] = {}

    async def caller(self, authorization: str | None) -> Caller:
        """The caller of an ``Authorization`` header; raises `Problem` 401 when there is none that counts."""
        if not authorization or not authorization.startswith("Bearer "):
            raise _unauthenticated("There is no bearer token in the Authorization header")
        token = authorization[7:].strip()
        known = self._seen.get(token)
        if known is not None and known[1] > time.time():
            return known[0]
        caller, expires = await self._verify(token)
        if len(self._seen) >= _CACHED_TOKENS:
            self._seen.clear()
        self._seen[token] = (caller, expires)
        return caller

    async def _verify(self, token: str) -> tuple[Caller, float]:
        try:
            decoded = jwt.decode(token, await self._key_set(), algorithms=_ALGORITHMS)
            self._claims.validate(decoded.claims)
        except (JoseError, ValueError) as error:
            raise _unauthenticated(f"The bearer token does not count: {error}") from error
        sub, kind = decoded.claims["sub"], self._kind(decoded.claims)
        if not isinstance(sub, str) or not 0 < len(sub) <= 200 or "\x00" in sub:
            raise _unauthenticated("The bearer token names no usable sub")
        return Caller(sub, kind), float(decoded.claims["exp"])

    def _kind(self, claims: dict[str, Any]) -> Kind:
        said = claims.get("typ")
        known: Kind | None = next((kind for kind in KINDS if kind == said), None)
        if known is not None:
            return known
        if self._jwks_url is None and said is None:
            return "human"
        if self._jwks_url is not None and self._person and _has(claims, self._person):
            return "human"
        raise _unauthenticated(
            "The bearer token does not say whether a person, an agent or a service is asking: it has neither a typ of those nor"
            f" the claim that shows a person's ({self._person or 'TAKEBACK_OIDC_PERSON names none'})"
        )

    async def _key_set(self) -> Any:
        if self._keys_until < time.monotonic() and self._jwks_url is not None:
            async with httpx.AsyncClient(timeout=5, follow_redirects=False) as client:
                try:
                    answer = (await client.get(self._jwks_url)).raise_for_status()
                except httpx.HTTPError as error:
                    raise Problem(
                        503,
                        "issuer-unavailable",
                        "The token issuer's keys cannot be read. Nothing was changed; try again.",
                    ) from error
            self._keys = KeySet.import_key_set(answer.json())
            self._keys_until = time.monotonic() + _JWKS_SECONDS
        return self._keys


def _has(claims: dict[str, Any], wanted: str) -> bool:
    """Whether *claims* have ``name``, or ``name=value`` as a value or in a list of values."""
    name, valued, value = wanted.partition("=")
    found = claims.get(name)
    if not valued:
        return bool(found)
    return value in [str(one) for one in (found if isinstance(found, list) else [found])]


def _unauthenticated(detail: str) -> Problem:
    problem = Problem(401, "unauthenticated", f"{detail}. Nothing was changed; send a token of this installation.")
    problem.headers["WWW-Authenticate"] = "Bearer"
    return problem
