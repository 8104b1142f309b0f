"""The desk that every page works at: who visits, what they send, and how a page is drawn for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, quote

import httpx
import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from notifier.console import guard, words
from notifier.console.sessions import Session, Sessions
from notifier.console.speaker import UNAUTHENTICATED, Speaker
from takeback import web
from takeback.errors import Problem, invalid
from takeback.visible import visible

log = structlog.get_logger()
SIGN_IN = "/console/sign-in"
NOTICES = {
    "stale": "Something changed since the plan that you decided, and nothing was done. This is what it means now.",
    "acknowledged": "Noted: you have seen what can still be taken back.",
    "proposed": "This is a proposal. Nothing has been taken back yet.",
    "rejected": "The plan was rejected. Nothing was taken back.",
    "decided": "Your decision is in the journal.",
    "confirmed": "The link is confirmed, under your name.",
    "settled": "Settled, under your name.",
    "undone": "Taken back, and checked.",
    "changed": "Done.",
}
"""What a page may be told to say on top, by key: no text comes from an address."""


@dataclass(slots=True)
class Visit:
    """One request of somebody who is signed in."""

    request: Request
    session: Session
    api: Speaker
    templates: Environment
    form: dict[str, list[str]] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """An id of the path; raises the one 404 when it is none."""
        return web.checked_id(self.request.path_params[name])

    def query(self, name: str) -> str | None:
        """A parameter of the address."""
        return self.request.query_params.get(name)

    def number(self, name: str, default: int = 0) -> int:
        """A number of the address."""
        given = self.query(name)
        return int(given) if given and given.isascii() and given.isdigit() and len(given) < 10 else default

    def field(self, name: str, default: str = "") -> str:
        """A field of the form, the last one of its name."""
        return self.form.get(name, [default])[-1]

    def render(self, template: str, **values: Any) -> Response:
        """The page *template* with *values*."""
        return HTMLResponse(_drawn(self.templates, template, self.request, session=self.session, **values))

    def go(self, path: str, notice: str | None = None) -> Response:
        """To another page of the console, which says *notice*."""
        if notice is not None:
            path += f"{'&' if '?' in path else '?'}told={notice}"
        return RedirectResponse(path, 303)

    @property
    def wants_part(self) -> bool:
        """Whether a script asks for a part of a page, to show it in a dialog."""
        return self.request.headers.get("x-takeback-part") == "1"


Page = Callable[[Visit], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Desk:
    """Makes endpoints of pages: finds out who visits, checks forms, draws refusals."""

    def __init__(self, sessions: Sessions, client: httpx.AsyncClient, api_url: str | None) -> None:
        self.sessions = sessions
        self.client = client
        self._api_url = api_url
        self.templates = environment()

    def page(self, page: Page) -> Endpoint:
        """A page to look at; whoever is not signed in is led to the sign-in and back."""

        async def serve(request: Request) -> Response:
            visit = await self._visit(request)
            if visit is None:
                return _to_sign_in(request)
            return await self._served(visit, page)

        return serve

    def action(self, page: Page) -> Endpoint:
        """Something that a form does; only forms of the visitor's own pages count."""

        async def serve(request: Request) -> Response:
            visit = await self._visit(request)
            if visit is None:
                return _to_sign_in(request, back="/")

            async def checked(visit: Visit) -> Response:
                guard.check_origin(request)
                visit.form = await read_form(request)
                guard.check_form(visit.session, visit.field("csrf") or request.headers.get("x-takeback-csrf"))
                return await page(visit)

            return await self._served(visit, checked)

        return serve

    def open(self, endpoint: Endpoint) -> Endpoint:
        """A page for everybody: the sign-in."""

        async def serve(request: Request) -> Response:
            try:
                return guard.guarded(await endpoint(request))
            except Problem as problem:
                return guard.guarded(self.refusal(request, problem))

        return serve

    def api_url(self, request: Request) -> str:
        """Where the HTTP API is: as set, else the very socket that this request came in by (never what it claims to be)."""
        if self._api_url:
            return self._api_url
        host, port = request.scope["server"]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def draw(self, request: Request, template: str, code: int = 200, **values: Any) -> Response:
        """A page for somebody who is not signed in."""
        return HTMLResponse(_drawn(self.templates, template, request, session=None, **values), code)

    def refusal(self, request: Request, problem: Problem, session: Session | None = None) -> Response:
        """A refusal as a page, or as the part of one that a dialog shows."""
        part = request.headers.get("x-takeback-part") == "1"
        template = "parts/refused.html" if part else "refused.html"
        text = _drawn(self.templates, template, request, session=session, problem=problem)
        return HTMLResponse(text, problem.status, dict(problem.headers))

    async def _visit(self, request: Request) -> Visit | None:
        session = await self.sessions.find(request.cookies.get(guard.COOKIE))
        if session is None:
            return None
        speaker = Speaker(self.client, self.api_url(request), session.token)
        return Visit(request, session, speaker, self.templates)

    async def _served(self, visit: Visit, page: Page) -> Response:
        try:
            return guard.guarded(await page(visit))
        except Problem as problem:
            if problem.status == UNAUTHENTICATED:
                return _to_sign_in(visit.request)
            return guard.guarded(self.refusal(visit.request, problem, visit.session))
        except Exception as error:  # told as a page too; it is our defect, so the log has all of it
            log.error("page failed", path=visit.request.url.path, exc_info=error)
            return guard.guarded(self.refusal(visit.request, _defect(), visit.session))


def environment() -> Environment:
    """The templates, with every value escaped and every name that is missing an error."""
    made = Environment(
        loader=PackageLoader("notifier.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "clock": words.clock,
        "closes": words.closes,
        "duty": words.duty,
        "effects": words.effects,
        "ago": words.ago,
        "urgency": words.urgency,
        "value": words.value,
        "document": words.document,
        "counted": words.counted,
        "percent": words.percent,
        "state_icon": words.state_icon,
        "state_word": words.state_word,
        "sentence": words.sentence,
        "spaced": words.spaced,
        "span": words.span,
    }
    made.globals |= {
        "tiers": words.TIERS,
        "why_not": words.WHY_NOT,
        "plain_details": words.PLAIN_DETAILS,
        "sources": words.SOURCES,
        "categories": words.CATEGORIES,
        "lapsed": words.LAPSED,
        "notices": NOTICES,
    }
    return made


def _seen(anything: Any) -> Any:
    """What a template puts out, with nothing in it that hides or turns around what is beside it: names and values are
    other people's text. What a macro put out is markup, and has gone by here in parts."""
    return visible(anything) if isinstance(anything, str) and not isinstance(anything, Markup) else anything


async def read_form(request: Request) -> dict[str, list[str]]:
    """The fields of a form as browsers send them by default. Raises `Problem` 422 for what is none."""
    body = await web.read_body(request)
    try:
        return parse_qs(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=20_000)
    except ValueError as error:
        raise invalid("The form cannot be read.") from error


def _drawn(templates: Environment, template: str, request: Request, **values: Any) -> Markup:
    told = NOTICES.get(request.query_params.get("told", ""))
    return Markup(  # noqa: S704  what Jinja2 has rendered is escaped
        templates.get_template(template).render(now=datetime.now(UTC), path=request.url.path, told=told, **values)
    )


def _defect() -> Problem:
    return Problem(
        500, "defect", "This is a defect of the console. What was changed is in the journal: look before you repeat."
    )


def _to_sign_in(request: Request, back: str | None = None) -> Response:
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return guard.guarded(RedirectResponse(f"{SIGN_IN}?back={quote(back or here, safe='')}", 303))
