"""What keeps the console's pages to themselves: headers for the browser, and proof that a form was ours."""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import Response

from notifier.console.sessions import Session
from takeback.errors import Problem

COOKIE = "takeback_session"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def guarded(response: Response) -> Response:
    """The response with the console's headers: no inline script or style, no framing, nothing kept by caches."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def check_origin(request: Request) -> None:
    """Raises `Problem` 403 for a request that another site made the browser send."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        raise foreign()
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise foreign()
    if site is None and origin is None:
        raise foreign()  # every browser of this decade says at least one of them with a POST


def check_form(session: Session, token: str | None) -> None:
    """Raises `Problem` 403 unless *token* is the one that the session's own pages carry."""
    if token is None or not hmac.compare_digest(token.encode(), session.csrf.encode()):
        raise foreign()


def foreign() -> Problem:
    """A form that did not come from a page of this console."""
    return Problem(
        403, "foreign-form", "This did not come from a page of this console. Nothing was changed; open the page again."
    )


def keep(response: Response, request: Request, secret: str) -> Response:
    """Sets the session's cookie: no script reads it, no other site sends it with a form."""
    response.set_cookie(COOKIE, secret, httponly=True, samesite="lax", secure=is_secure(request), path="/")
    return response


def is_secure(request: Request) -> bool:
    """Whether the browser speaks TLS, to this service or to the edge in front of it."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
