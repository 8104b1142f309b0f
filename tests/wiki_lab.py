"""Around the wiki of `examples/browser`: a glass between browser and wiki that shows what it likes, and a teammate."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Self

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.waiting import WAIT_SECONDS

_HOP = {"host", "accept-encoding", "content-encoding", "content-length", "transfer-encoding", "connection", "date"}
_CSRF = re.compile(r'name="csrf_token" value="([^"]+)"')


class Glass:
    """Hands every request on to the wiki at *url*, and the answer back as `paint` makes it look.

    With `pretends` no revert reaches the wiki: the browser is shown what the wiki shows after one.
    """

    def __init__(self, url: str) -> None:
        self._wiki = httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS)
        self.paint: Callable[[str], str] | None = None
        self.pretends = False
        self.app = Starlette(routes=[Route("/{path:path}", self._pass, methods=["GET", "POST"])])

    async def aclose(self) -> None:
        await self._wiki.aclose()

    async def _pass(self, request: Request) -> Response:
        headers = {name: value for name, value in request.headers.items() if name not in _HOP}
        path = f"{request.url.path}?{request.url.query}"
        if self.pretends and request.method == "POST" and "/-/revert/" in path:
            shown = await self._wiki.get("/-/changelog", headers=headers)
            told = '<div class="alert" style="display: block">Reverted commit.</div>'
            return Response(shown.text.replace('<div class="sticky-alerts">', f'<div class="sticky-alerts">{told}'))
        answer = await self._wiki.request(request.method, path, headers=headers, content=await request.body())
        body = answer.content
        if self.paint is not None and answer.headers.get("content-type", "").startswith("text/html"):
            body = self.paint(answer.text).encode()
        response = Response(body, answer.status_code)
        response.raw_headers.extend((n, v) for n, v in answer.headers.raw if n.decode().lower() not in _HOP)
        return response


class Teammate:
    """Somebody who uses the wiki at *url* by themselves; nothing of it passes the recorder. *pages*: where it keeps them."""

    def __init__(self, url: str, pages: Path) -> None:
        self._pages = pages
        signed_in = {
            "x-otterwiki-name": "Priya",
            "x-otterwiki-email": "priya@acme.example",
            "x-otterwiki-permissions": "READ,WRITE",
        }
        self._http = httpx.AsyncClient(base_url=url, headers=signed_in, timeout=WAIT_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def write(self, page: str, text: str) -> None:
        """Save a page."""
        form = _CSRF.search((await self._http.get(f"/{page}?edit")).text)
        assert form is not None
        saved = await self._http.post(
            f"/{page}/save", data={"csrf_token": form[1], "content": text, "commit": "A word of mine"}
        )
        assert saved.status_code == httpx.codes.FOUND, saved.text

    def text(self, page: str) -> str | None:
        """A page as the wiki keeps it, or None."""
        kept = self._pages / f"{page}.md"
        return kept.read_text() if kept.exists() else None

    async def changes(self) -> list[str]:
        """The revisions of the wiki, newest first."""
        return re.findall(r"/-/revert/([0-9a-f]+)", (await self._http.get("/-/changelog")).text)
