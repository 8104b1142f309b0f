"""Signing in and out: with a token (the embedded start prints a link that holds one), or at an OIDC issuer."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notifier.console import guard
from notifier.console.desk import SIGN_IN, Desk, Visit, read_form
from notifier.console.oidc import Issuer
from takeback.errors import Problem

_PENDING = "takeback_sign_in"
_PENDING_SECONDS = 600


def routes(desk: Desk, issuer: Issuer | None) -> list[Route]:
    """The sign-in's pages; those of *issuer* where one is set."""

    async def form(request: Request) -> Response:
        back = _inside(request.query_params.get("back"))
        return desk.draw(request, "sign_in.html", back=back, issuer=issuer is not None, problem=None)

    async def with_token(request: Request) -> Response:
        guard.check_origin(request)
        sent = await read_form(request)
        back = _inside(sent.get("back", [None])[-1])
        try:
            session = await desk.sessions.open(sent.get("token", [""])[-1].strip())
        except Problem as problem:
            if problem.status not in (401, 403):
                raise
            return desk.draw(request, "sign_in.html", 422, back=back, issuer=issuer is not None, problem=problem)
        return guard.keep(RedirectResponse(back, 303), request, session.secret)

    async def to_issuer(request: Request) -> Response:
        assert issuer is not None
        pending = issuer.begin(_inside(request.query_params.get("back")))
        response = RedirectResponse(await issuer.address(pending, _callback(request)), 303)
        response.set_cookie(
            _PENDING, issuer.sealed(pending), max_age=_PENDING_SECONDS, httponly=True, samesite="lax",
            secure=guard.is_secure(request), path=f"{SIGN_IN}/",
        )  # fmt: skip
        return response

    async def from_issuer(request: Request) -> Response:
        assert issuer is not None
        pending = issuer.opened(request.cookies.get(_PENDING), _PENDING_SECONDS)
        token = await issuer.token(pending, request.query_params, _callback(request))
        session = await desk.sessions.open(token)
        response = guard.keep(RedirectResponse(pending.back, 303), request, session.secret)
        response.delete_cookie(_PENDING, path=f"{SIGN_IN}/")
        return response

    async def out(visit: Visit) -> Response:
        await desk.sessions.close(visit.session)
        response = RedirectResponse(SIGN_IN, 303)
        response.delete_cookie(guard.COOKIE, path="/")
        return response

    found = [
        Route(SIGN_IN, desk.open(form)),
        Route(f"{SIGN_IN}/token", desk.open(with_token), methods=["POST"]),
        Route("/console/sign-out", desk.action(out), methods=["POST"]),
    ]
    if issuer is not None:
        found += [
            Route(f"{SIGN_IN}/issuer", desk.open(to_issuer)),
            Route(f"{SIGN_IN}/callback", desk.open(from_issuer)),
        ]
    return found


def _inside(back: str | None) -> str:
    """*back* when it is a path of this console, else its first page: nobody is led elsewhere by an address."""
    safe = back is not None and back.startswith(("/console/",)) and "\\" not in back and "//" not in back
    return back if safe and back is not None and not back.startswith(SIGN_IN) else "/"


def _callback(request: Request) -> str:
    scheme = "https" if guard.is_secure(request) else "http"
    return f"{scheme}://{request.headers.get('host', '')}{SIGN_IN}/callback"
