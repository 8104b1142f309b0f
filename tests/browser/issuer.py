"""A small OIDC issuer: discovery, authorization with PKCE, token, keys. Whoever comes is signed in as *sub*."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from typing import Any
from urllib.parse import parse_qs, urlencode

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET, AUDIENCE = "takeback-console", "a-secret-of-the-client", "takeback-api"


class Issuer:
    """Issues tokens for *audience*; *url* is known once it is served."""

    def __init__(self, sub: str) -> None:
        self.sub = sub
        self.url = ""
        self.opaque = False
        """Whether access tokens say nothing to the API, as some issuers' do."""
        self.nonce: str | None = None
        """What id tokens say instead of the nonce that was asked for."""
        self._key = RSAKey.generate_key(2048, {"kid": "k1"})
        self._codes: dict[str, dict[str, str]] = {}

    def application(self) -> Starlette:
        """What the browser and the console speak to."""
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._discovery),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/keys", self._keys),
            ]
        )

    def token(self, audience: str, **more: Any) -> str:
        """A token for the signed-in person: of a session, which a program's own token has not."""
        now = int(time.time())
        claims = {"sid": "s1", "iss": self.url, "sub": self.sub, "aud": audience, "iat": now, "exp": now + 600, **more}
        return jwt.encode({"alg": "RS256", "kid": "k1"}, claims, self._key)

    async def _discovery(self, _: Request) -> Response:
        ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        return JSONResponse({"issuer": self.url, **{name: f"{self.url}/{path}" for name, path in ends.items()}})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(12)
        self._codes[code] = asked
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        sent = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        asked = self._codes.pop(sent["code"])
        challenge = base64.urlsafe_b64encode(hashlib.sha256(sent["code_verifier"].encode()).digest()).rstrip(b"=")
        if sent.get("client_secret") != SECRET or challenge.decode() != asked["code_challenge"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        id_token = self.token(CLIENT, nonce=self.nonce or asked["nonce"])
        access = "opaque" if self.opaque else self.token(AUDIENCE)
        return JSONResponse({"access_token": access, "id_token": id_token, "token_type": "Bearer", "expires_in": 600})

    async def _keys(self, _: Request) -> Response:
        return JSONResponse(KeySet([self._key]).as_dict(private=False))
