"""Answers over HTTP: as JSON at once, or as server-sent events where there is something to tell before the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from recorder.mcp_door import shape
from recorder.mcp_door.changes import Changed
from recorder.mcp_door.exchange import Exchange, Json, Rejected
from recorder.toolport.hearing import Hearing, Kind, Progress, hearing
from takeback import json
from takeback.errors import Problem
from takeback.tasks import end

PING_SECONDS: Final = 15.0
PING: Final = b": ping\r\n\r\n"
_WATCH_AFTER_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Told:
    """The response to a request, and the request of ours that goes before it."""

    response: Json
    before: Json | None = None


async def answered(
    request: Request, exchange: Exchange, listens: bool, work: Callable[[Hearing], Coroutine[Any, Any, Told]]
) -> Response:
    """The answer that *work* makes. *listens*: the client wants progress, and gets it as it comes.

    In the 2026-07-28 era a connection that is dropped is a cancellation; before, it says nothing (`Exchange.modern`).
    """
    events: asyncio.Queue[Json] = asyncio.Queue()
    heard = Hearing(_progress(exchange.progress_token, events) if listens and exchange.streams else None)
    context = hearing.set(heard)
    try:
        if heard.progress is None:
            with _Watched(request, exchange, heard):
                return _at_once(await work(heard))
        working = asyncio.ensure_future(work(heard))
    finally:
        hearing.reset(context)
    first = asyncio.ensure_future(events.get())
    with _Watched(request, exchange, heard):
        await asyncio.wait((working, first), return_when=asyncio.FIRST_COMPLETED)
    if not first.done() and working.done():
        first.cancel()
        return _at_once(await working)
    return EventStream(_frames(exchange, first, events, working), heard.cancel if exchange.modern else None)


class EventStream(Response):
    """Server-sent events until *frames* end or the client has gone; then *gone* is called.

    At a shutdown the client is told so by *last*: to this side both look the same.
    """

    def __init__(
        self, frames: AsyncGenerator[bytes, None], gone: Callable[[], None] | None = None, last: bytes = b""
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.headers["content-type"] = "text/event-stream"
        self._frames = frames
        self._gone = gone
        self._last = last

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Sends while the client listens."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        writing = asyncio.ensure_future(self._write(send))
        watching = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait((writing, watching), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done() and self._gone is not None:
                self._gone()
        finally:
            await end(writing, watching)
            await self._frames.aclose()
        if not writing.cancelled():
            writing.result()  # raises what went wrong
        await send({"type": "http.response.body", "body": self._last, "more_body": False})

    async def _write(self, send: Send) -> None:
        async for chunk in self._frames:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def notices(messages: Mapping[Kind, Json], changed: Changed) -> AsyncIterator[bytes]:
    """Each of the *messages* whenever what it is of has changed, and signs of life between."""
    while True:
        try:
            async with asyncio.timeout(PING_SECONDS):
                kinds = await changed.take()
        except TimeoutError:
            yield PING
            continue
        for kind, message in messages.items():
            if kind in kinds:
                yield shape.frame(message)


def as_json(message: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """One JSON-RPC message."""
    return Response(json.dumps(message), status, headers, "application/json")


def _at_once(told: Told) -> Response:
    if told.before is None:
        return as_json(told.response)
    return EventStream(_both(told))


async def _both(told: Told) -> AsyncGenerator[bytes, None]:
    assert told.before is not None
    yield shape.frame(told.before)
    yield shape.frame(told.response)


async def _frames(
    exchange: Exchange, first: asyncio.Future[Json], events: asyncio.Queue[Json], working: asyncio.Future[Told]
) -> AsyncGenerator[bytes, None]:
    """Progress as it comes, then the response. *working* goes on to its end even where nobody reads on."""
    following = first
    try:
        while True:
            done, _ = await asyncio.wait(
                (working, following), timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if following in done:
                yield shape.frame(following.result())
                following = asyncio.ensure_future(events.get())
            elif working in done:
                break
            else:
                yield PING
    finally:
        following.cancel()
    try:
        told = await working
    except Rejected as rejected:
        yield shape.frame(shape.error(rejected))
        return
    except Problem as problem:
        yield shape.frame(shape.error(exchange.rejected(types.INTERNAL_ERROR, problem.detail)))
        return
    if told.before is not None:
        yield shape.frame(told.before)
    yield shape.frame(told.response)


class _Watched:
    """Cancels what *heard* is about when the client drops the connection, where that means anything."""

    def __init__(self, request: Request, exchange: Exchange, heard: Hearing) -> None:
        self._watching: asyncio.Task[None] | None = None
        self._request = request
        self._heard = heard
        self._later: asyncio.TimerHandle | None = None
        if exchange.modern:
            # Most calls have ended before it is worth a task to see whether their client is still there.
            self._later = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, self._watch)

    def __enter__(self) -> None:
        """Watches until the block ends."""

    def __exit__(self, *_: object) -> None:
        if self._later is not None:
            self._later.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _watch(self) -> None:
        self._watching = asyncio.ensure_future(_cancelling(self._request, self._heard))


async def _cancelling(request: Request, heard: Hearing) -> None:
    await _until_gone(request.receive)
    heard.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _progress(token: int | str | None, events: asyncio.Queue[Json]) -> Progress | None:
    if token is None:
        return None

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told = {"progressToken": token, "progress": progress, "total": total, "message": message}
        known = {key: value for key, value in told.items() if value is not None}
        events.put_nowait(shape.notification("notifications/progress", known))

    return heard
