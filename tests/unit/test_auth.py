"""Who is asking: what a token has to say so that it counts as a person's."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from takeback.auth import Caller, Verifier, issue_token
from takeback.errors import Problem
from takeback.keys import ensure_keys
from tests.serving import served

KEY = RSAKey.generate_key(2048, {"kid": "k1"})
ISSUER = "https://login.example"


@pytest.fixture
async def jwks_url() -> AsyncIterator[str]:
    """An issuer's keys, served."""

    async def keys(_: Any) -> JSONResponse:
        return JSONResponse(KeySet([KEY]).as_dict(private=False))

    async with served(Starlette(routes=[Route("/keys", keys)])) as url:
        yield f"{url}/keys"


def bearer(**claims: Any) -> str:
    whole = {"iss": ISSUER, "sub": "olga", "exp": int(time.time()) + 60, **claims}
    return "Bearer " + jwt.encode({"alg": "RS256", "kid": "k1"}, whole, KEY)


@pytest.mark.parametrize(
    ("person", "claims"),
    [
        (None, {"typ": "human"}),
        ("sid", {"sid": "s1"}),
        ("sid", {"sid": "s1", "typ": "Bearer"}),
        ("idtyp=user", {"idtyp": "user"}),
        ("amr=pwd", {"amr": ["pwd", "mfa"]}),
    ],
)
async def test_an_issuers_token_is_a_persons_where_it_says_so(
    jwks_url: str, person: str | None, claims: dict[str, Any]
) -> None:
    """P10, S14: by `typ`, or by the claim that the operator named."""
    verifier = Verifier(jwks_url=jwks_url, issuer=ISSUER, person=person)
    assert await verifier.caller(bearer(**claims)) == Caller("olga", "human")


@pytest.mark.parametrize(
    ("person", "claims"),
    [
        (None, {}),
        (None, {"sid": "s1"}),
        ("sid", {"gty": "client-credentials"}),
        ("sid", {"sid": ""}),
        ("idtyp=user", {"idtyp": "app"}),
        ("idtyp=user", {"idtyp": ["app"]}),
    ],
)
async def test_a_programs_own_token_of_the_same_issuer_is_nobodys(
    jwks_url: str, person: str | None, claims: dict[str, Any]
) -> None:
    """P10, S14: what does not say that a person is asking is never taken for one."""
    verifier = Verifier(jwks_url=jwks_url, issuer=ISSUER, person=person)
    with pytest.raises(Problem) as refused:
        await verifier.caller(bearer(**claims))
    assert (refused.value.status, refused.value.slug) == (401, "unauthenticated")
    assert (person or "TAKEBACK_OIDC_PERSON") in refused.value.detail


async def test_a_typ_outranks_the_claim_that_shows_a_person(jwks_url: str) -> None:
    verifier = Verifier(jwks_url=jwks_url, issuer=ISSUER, person="sid")
    assert await verifier.caller(bearer(sid="s1", typ="agent")) == Caller("olga", "agent")


async def test_the_installations_own_tokens_say_it_as_before(tmp_path: Path) -> None:
    ensure_keys(tmp_path)
    token = issue_token(tmp_path / "token.pem", "olga", "service")
    assert await Verifier(token_key=tmp_path / "token.pem").caller(f"Bearer {token}") == Caller("olga", "service")
