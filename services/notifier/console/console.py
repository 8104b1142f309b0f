"""The console put together: its pages, its static files, and the ticket that opens a live stream from a page."""

from __future__ import annotations

from importlib.resources import files

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from notifier.console import signing_in
from notifier.console.desk import Desk, Visit
from notifier.console.oidc import Issuer
from notifier.console.pages import approvals, campaigns, entries, plans, questions, reviews, runs, security
from notifier.console.sessions import Sessions
from takeback.errors import not_found

_PAGES = (campaigns, reviews, plans, approvals, questions, security, entries, runs)


class Console:
    """The console of one notifier. *api_url* says where the HTTP API is; None: where the request came in."""

    def __init__(
        self, sessions: Sessions, client: httpx.AsyncClient, api_url: str | None, issuer: Issuer | None
    ) -> None:
        self._client = client
        self._desk = Desk(sessions, client, api_url)
        self._issuer = issuer

    def routes(self) -> list[BaseRoute]:
        """`/`, `/console/…` and `/static/…`."""
        pages = [route for page in _PAGES for route in page.routes(self._desk)]
        return [
            *signing_in.routes(self._desk, self._issuer),
            Route("/console/ticket", self._desk.action(_ticket), methods=["POST"]),
            *pages,
            Route("/console/", _start),
            Route("/console/{rest:path}", self._desk.page(_nothing)),
            Mount("/static", _Static()),
        ]

    async def close(self) -> None:
        """Lets go of the connections to the API."""
        await self._client.aclose()


async def _start(_: Request) -> Response:
    """For whoever types the folder's address."""
    return RedirectResponse("/")


async def _nothing(_: Visit) -> Response:
    raise not_found()


async def _ticket(visit: Visit) -> Response:
    return JSONResponse(await visit.api.post("/v1/tickets"))


class _Static(StaticFiles):
    """The console's style and scripts; browsers ask whether they have changed, and mostly they have not."""

    def __init__(self) -> None:
        super().__init__(directory=str(files("notifier.console") / "static"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a file with headers that let nobody take it for something else."""

        async def with_headers(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                assert isinstance(headers, list)
                headers += [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-cache")]
            await send(message)

        await super().__call__(scope, receive, with_headers)  # type: ignore[arg-type]  # the same message, changed in place
