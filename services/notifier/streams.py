"""The live streams: the same frames as Server-Sent Events (WHATWG HTML) and over WebSocket (N6).

`event` is the short type, `data` the CloudEvent, `id` the cursor that resumes after it. Two more events are of the stream
itself: `reset` (what came since your last id is gone: read anew what you show) and `closed` (why it ends; SSE alone, for
WebSocket has close codes).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

import orjson
import structlog
from fastapi import APIRouter
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from notifier.feed import Cursor
from notifier.hub import Ended, Hub, too_slow
from notifier.reviews import Reviews
from notifier.tickets import Tickets
from takeback import json
from takeback.auth import Caller, Verifier
from takeback.errors import Problem
from takeback.web import checked_id, problem_response

log = structlog.get_logger()
_PING_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Frame:
    """One message to a client."""

    id: str
    event: str
    data: bytes


class Streams:
    """The two doors of a campaign's live stream."""

    def __init__(self, hub: Hub, reviews: Reviews, tickets: Tickets, verifier: Verifier, send_seconds: float) -> None:
        self._hub = hub
        self._reviews = reviews
        self._tickets = tickets
        self._verifier = verifier
        self._send_seconds = send_seconds

    def router(self) -> APIRouter:
        """`GET …/stream` and `…/ws`."""
        router = APIRouter()
        router.add_api_route("/v1/campaigns/{campaign}/stream", self.sse, methods=["GET"], response_model=None)
        router.add_api_websocket_route("/v1/campaigns/{campaign}/ws", self.websocket)
        return router

    async def sse(self, request: Request, campaign: str) -> Response:
        """The stream as Server-Sent Events."""
        caller, cursor, reset = await self._admit(request, campaign)
        return _EventStream(
            self._as_sse(campaign, caller, cursor, reset),
            headers={"Last-Event-ID": str(cursor)},
            ping=_PING_SECONDS,
            send_timeout=self._send_seconds,
        )

    async def websocket(self, websocket: WebSocket, campaign: str) -> None:
        """The stream over WebSocket: JSON text messages ``{id, event, data}``; what the client says is not read."""
        try:
            caller, cursor, reset = await self._admit(websocket, campaign)
        except Problem as problem:
            await websocket.send_denial_response(problem_response(problem))
            return
        await websocket.accept()
        sending = asyncio.create_task(self._send(websocket, campaign, caller, cursor, reset))
        leaving = asyncio.create_task(_until_gone(websocket))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
        ended = next((result for result in results if isinstance(result, Ended)), None)
        if ended is not None:
            # To a client that reads nothing even this cannot be said; the connection is cut all the same.
            with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
                async with asyncio.timeout(1):
                    await websocket.close(ended.code, str(ended))

    async def _admit(self, connection: HTTPConnection, campaign: str) -> tuple[Caller, Cursor, bool]:
        """Who listens, from where on, and whether they must reset; raises `Problem` 401, 404 or 503."""
        caller = await self._caller(connection)
        await self._reviews.enter(checked_id(campaign), caller)
        last = connection.headers.get("last-event-id") or connection.query_params.get("lastEventId")
        cursor, reset = await self._hub.place(campaign, last)
        return caller, cursor, reset

    async def _caller(self, connection: HTTPConnection) -> Caller:
        ticket = connection.query_params.get("ticket")
        if ticket is None or "authorization" in connection.headers:
            return await self._verifier.caller(connection.headers.get("authorization"))
        caller = await self._tickets.take(ticket)
        if caller is None:
            raise Problem(
                401,
                "unauthenticated",
                "The ticket is unknown, used or expired. Nothing was changed; ask for another one: POST /v1/tickets.",
            )
        return caller

    async def _frames(self, campaign: str, caller: Caller, cursor: Cursor, reset: bool) -> AsyncGenerator[Frame, None]:
        """What a client is sent; raises `Ended`."""
        if reset:
            yield Frame(str(cursor), "reset", json.dumps({"campaign": campaign}))
        async with self._hub.listening(campaign, caller, cursor.seq) as events:
            async for fed in events:
                yield Frame(f"{cursor.epoch}-{fed.seq}", fed.type, fed.event)

    async def _as_sse(
        self, campaign: str, caller: Caller, cursor: Cursor, reset: bool
    ) -> AsyncIterator[ServerSentEvent]:
        frames = self._frames(campaign, caller, cursor, reset)
        try:
            async with contextlib.aclosing(frames):
                async for frame in frames:
                    yield ServerSentEvent(data=frame.data.decode(), event=frame.event, id=frame.id)
        except Ended as ended:
            yield ServerSentEvent(data=json.dumps({"reason": str(ended)}).decode(), event="closed")

    async def _send(self, websocket: WebSocket, campaign: str, caller: Caller, cursor: Cursor, reset: bool) -> None:
        frames = self._frames(campaign, caller, cursor, reset)
        async with contextlib.aclosing(frames):
            async for frame in frames:
                text = json.dumps({"id": frame.id, "event": frame.event, "data": orjson.Fragment(frame.data)}).decode()
                try:
                    async with asyncio.timeout(self._send_seconds):
                        await websocket.send_text(text)
                except TimeoutError as error:
                    raise too_slow() from error


class _EventStream(EventSourceResponse):
    """A response that ends quietly when its client takes nothing any more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the stream ends, the client goes, or one event takes too long to leave."""
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            log.info("a client read too slowly and was dropped", path=scope["path"])


async def _until_gone(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
