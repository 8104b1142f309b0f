"""The game's own web application: a screen for each player, fed by Takeback's live stream, with the state of the database.

The browser hears of the game from its own server, which listens to Takeback with the player's token: a token of the
installation never reaches a page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from importlib.resources import files
from typing import Any

import asyncpg
import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

_FOLDER = files("examples.table.web")
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
_LONGEST = httpx.Timeout(5, read=None)


class Screens:
    """The screens of *players*, who are members of *campaign* at Takeback's *url*; *token* gives a player's."""

    def __init__(
        self, pool: asyncpg.Pool[Any], url: str, campaign: str, players: Sequence[str], token: Callable[[str], str]
    ) -> None:
        self._pool = pool
        self._stream = f"{url}/v1/campaigns/{campaign}/stream"
        self._players = players
        self._token = token
        self._client = httpx.AsyncClient(timeout=_LONGEST, limits=httpx.Limits(max_connections=None))

    async def close(self) -> None:
        """Ends every stream."""
        await self._client.aclose()

    def application(self) -> Starlette:
        """`/{player}/{adventure}` shows a screen; its stream and the adventure's state lie beside it."""
        return Starlette(
            routes=[
                Mount("/static", StaticFiles(directory=str(_FOLDER / "static"))),
                Route("/{player}/{adventure}", self._screen),
                Route("/{player}/{adventure}/state", self._state),
                Route("/{player}/{adventure}/stream", self._listen),
            ]
        )

    async def _screen(self, request: Request) -> Response:
        if request.path_params["player"] not in self._players:
            return Response("Nobody of this name sits at the table.", 404, media_type="text/plain")
        if await self._title(request) is None:
            there = f"There is no adventure {request.path_params['adventure']!r} at this table."
            told = f"{there} `make demo` plays one, and prints the link to a screen of it."
            return Response(told, 404, media_type="text/plain")
        page = (_FOLDER / "screen.html").read_text()
        return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})

    async def _state(self, request: Request) -> Response:
        """How the adventure stands in the database now."""
        title = await self._title(request)
        if title is None:
            return JSONResponse({"detail": "There is no such adventure."}, 404)
        rows = await self._pool.fetch(
            "select id, name, player, hp, max_hp, conditions from game.creatures where adventure = $1 order by name",
            request.path_params["adventure"],
        )
        return JSONResponse({"title": title, "creatures": [dict(row) for row in rows]})

    async def _title(self, request: Request) -> str | None:
        """The adventure's; None: there is none of its name."""
        adventure = request.path_params["adventure"]
        title: str | None = await self._pool.fetchval("select title from game.adventures where id = $1", adventure)
        return title

    async def _listen(self, request: Request) -> Response:
        """Takeback's live stream, as this player hears it; whatever Takeback refuses, the page tries again."""
        player = request.path_params["player"]
        if player not in self._players:
            return Response(status_code=404)
        last = request.headers.get("last-event-id") or request.query_params.get("lastEventId")
        headers = {"Authorization": f"Bearer {self._token(player)}", "Accept": "text/event-stream"}
        asked = self._client.build_request(
            "GET", self._stream, headers=headers | ({"Last-Event-ID": last} if last else {})
        )
        try:
            heard = await self._client.send(asked, stream=True)
        except httpx.HTTPError:
            return Response(status_code=503)
        if heard.status_code != httpx.codes.OK:
            await heard.aclose()
            return Response(status_code=503)
        return StreamingResponse(
            _passed_on(heard), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )


async def _passed_on(heard: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in heard.aiter_raw():
            yield chunk
    except httpx.HTTPError:
        return  # the page connects again, and resumes after its last id
    finally:
        await heard.aclose()
