"""The HTTP side of the door: streamable HTTP of both eras, stateless. Parse, ask a use case, answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import mcp_types as types
from fastapi import APIRouter
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response

from recorder.mcp_door import calling, shape
from recorder.mcp_door.asking import Waits, elicitation, in_problem, in_words, input_required
from recorder.mcp_door.calling import BadState, Calling, UnknownTool
from recorder.mcp_door.catalog import Catalog
from recorder.mcp_door.changes import Changes
from recorder.mcp_door.exchange import SESSION_HEADER, Exchange, Json, Notice, Rejected, RequestId, new_session, read
from recorder.mcp_door.offers import NOT_ARGUMENTS, Offers, kind_of
from recorder.mcp_door.shape import Refusal
from recorder.mcp_door.streams import EventStream, Told, answered, as_json, notices
from recorder.toolport.hearing import Hearing, Kind
from recorder.toolport.offers import READS
from takeback.auth import Caller, Verifier
from takeback.errors import Problem
from takeback.web import checked_id, read_body

_TOOLS: Final[Json] = {"tools": {"listChanged": True}}
"""What every place has: its list changes with the servers, their pins and the allow-list."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a client knocked, and who it is. *server*: None where all servers' tools are shown."""

    run: str
    server: str | None
    caller: Caller


class McpDoor:
    """Serves `/mcp/runs/{run}` and `/mcp/runs/{run}/{server}`."""

    def __init__(
        self,
        verifier: Verifier,
        catalog: Catalog,
        calls: Calling,
        offers: Offers,
        changes: Changes,
        public_url: str = "",
    ) -> None:
        self._verifier = verifier
        self._catalog = catalog
        self._calls = calls
        self._offers = offers
        self._changes = changes
        self._public_url = public_url
        # Only to pass a cancellation on, where the replica that holds the call happens to hear of it.
        self._in_hand: dict[tuple[str, RequestId], Hearing] = {}

    @property
    def routes(self) -> APIRouter:
        """All of the door. Plain routes: `web.App` leads them past everything that a call does not need."""
        routes = APIRouter()
        for path in ("/mcp/runs/{run}/{server}", "/mcp/runs/{run}"):
            routes.add_route(path, self._serve, methods=["POST", "GET", "DELETE"])
        return routes

    async def _serve(self, request: Request) -> Response:
        caller = await self._verifier.caller(request.headers.get("authorization"))
        server = request.path_params.get("server")
        place = _Place(
            checked_id(request.path_params["run"]),
            None if server is None else checked_id(server),
            caller,
        )
        if request.method == "DELETE":
            return Response(status_code=204)  # a session is nothing that could end
        if request.method == "POST":
            try:
                return await self._post(place, request)
            except Rejected as rejected:
                return as_json(shape.error(rejected), rejected.status)
        if "text/event-stream" not in request.headers.get("accept", ""):
            return Response(status_code=406)
        _, offered = await self._catalog.offers(place.run, place.server, place.caller)
        told = {kind: _list_changed(kind, {}) for kind in _listed(offered)}
        return EventStream(self._told_of_changes(place, None, told))

    async def _post(self, place: _Place, request: Request) -> Response:
        message = read(await read_body(request), request.headers)
        if isinstance(message, Notice):
            self._note(message)
            return Response(status_code=202)
        if message.method == shape.TOOL_CALL:
            return await self._call(place, message, request)
        if message.method in READS.values():
            return await self._read(place, message, request)
        if kind_of(message) is not None:
            return as_json(
                shape.response(message, await self._offers.ask(place.run, place.server, place.caller, message))
            )
        if message.method == "subscriptions/listen" and message.modern:
            return await self._subscribe(place, message)
        answers = _MODERN if message.modern else _LEGACY
        if message.method not in answers:
            raise message.rejected(types.METHOD_NOT_FOUND, "Method not found", message.method)
        return await answers[message.method](self, place, message)

    # --- getting to know each other -------------------------------------------------------------------------------------

    async def _ping(self, _: _Place, message: Exchange) -> Response:
        return as_json(shape.response(message, {}))

    async def _tools(self, place: _Place, message: Exchange) -> Response:
        tools = await self._catalog.tools(place.run, place.server, place.caller)
        introduced = await self._catalog.introduction(place.run, place.server, place.caller)
        return as_json(shape.response(message, shape.listing({"tools": tools}), introduced.info))

    async def _initialize(self, place: _Place, message: Exchange) -> Response:
        introduced = await self._catalog.introduction(place.run, place.server, place.caller)
        wanted = message.params.get("protocolVersion")
        result = {
            "protocolVersion": wanted if wanted in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
            "capabilities": _TOOLS | introduced.offers,
            "serverInfo": introduced.info,
        }
        result |= {} if introduced.instructions is None else {"instructions": introduced.instructions}
        return as_json(shape.response(message, result), headers={SESSION_HEADER: new_session(message.params)})

    async def _discover(self, place: _Place, message: Exchange) -> Response:
        introduced = await self._catalog.introduction(place.run, place.server, place.caller)
        capabilities = _TOOLS | introduced.offers
        result = {"supportedVersions": list(MODERN_PROTOCOL_VERSIONS), "capabilities": capabilities}
        result |= {} if introduced.instructions is None else {"instructions": introduced.instructions}
        return as_json(shape.response(message, shape.listing(result), introduced.info))

    # --- calls ----------------------------------------------------------------------------------------------------------

    async def _call(self, place: _Place, message: Exchange, request: Request) -> Response:
        name = message.params.get("name")
        if not isinstance(name, str):
            raise message.rejected(types.INVALID_PARAMS, "tools/call needs the name of a tool")
        if place.server is not None:
            of: tuple[str, str] | None = (place.server, name)
        else:
            of = await self._catalog.resolve(place.run, name, place.caller)
        if of is None or (of[1] in READS.values() and await self._catalog.reads(place.run, *of, place.caller)):
            raise message.rejected(types.INVALID_PARAMS, f"Unknown tool: {name}")
        return await self._through(place, message, request, *of, message.params)

    async def _read(self, place: _Place, message: Exchange, request: Request) -> Response:
        """A resource or a prompt: a call of the operation that the protocol itself declares (J12)."""
        server, method = place.server, message.method
        if server is None or not await self._catalog.reads(place.run, server, method, place.caller):
            raise message.rejected(types.METHOD_NOT_FOUND, "Method not found", method)
        arguments = {name: value for name, value in message.params.items() if name not in NOT_ARGUMENTS}
        params = {**message.params, "arguments": arguments}
        return await self._through(place, message, request, server, method, params)

    async def _through(
        self, place: _Place, message: Exchange, request: Request, server: str, operation: str, params: Json
    ) -> Response:
        try:
            made = calling.wanted(place.run, place.caller, server, operation, params)
        except Problem as problem:
            return as_json(shape.answer(message, in_problem(problem)))

        async def work(heard: Hearing) -> Told:
            with_session = None if message.session is None else (message.session, message.id)
            if with_session is not None:
                self._in_hand[with_session] = heard
            try:
                return self._told(request, message, made, await self._calls.call(made))
            except UnknownTool as error:
                raise message.rejected(types.INVALID_PARAMS, f"Unknown tool: {operation}") from error
            except BadState as error:
                wrong = {"reason": "invalid_request_state"}
                raise message.rejected(types.INVALID_PARAMS, str(error), wrong) from error
            finally:
                if with_session is not None:
                    self._in_hand.pop(with_session, None)

        return await answered(request, message, message.progress_token is not None, work)

    def _told(self, request: Request, message: Exchange, made: calling.Wanted, told: Json | Refusal | Waits) -> Told:
        """What the client is told: of a call that waits, in the way that it understands."""
        if not isinstance(told, Waits):
            return Told(shape.answer(message, told))
        link = told.link(self._public_url or f"{request.url.scheme}://{request.url.netloc}")
        shows_link = message.links and not told.approved
        if shows_link and message.modern and made.state is None:
            return Told(shape.response(message, input_required(told, link, self._calls.sealed(told, made))))
        try:
            words = shape.answer(message, in_words(told, link))
        except Rejected as rejected:
            words = shape.error(rejected)
        if shows_link and not message.modern and message.streams:
            params = elicitation(told, link, modern=False)
            return Told(words, {"jsonrpc": "2.0", "id": told.id, "method": "elicitation/create", "params": params})
        return Told(words)

    def _note(self, notice: Notice) -> None:
        """A cancellation reaches its call; everything else that wants no answer changes nothing here."""
        if notice.method == "notifications/cancelled" and notice.session is not None:
            of = notice.params.get("requestId")
            heard = self._in_hand.get((notice.session, of)) if isinstance(of, (int, str)) else None
            if heard is not None:
                heard.cancel()

    # --- changes of the list --------------------------------------------------------------------------------------------

    async def _subscribe(self, place: _Place, message: Exchange) -> Response:
        if not message.streams:
            return Response(status_code=406)
        _, offered = await self._catalog.offers(place.run, place.server, place.caller)
        wanted = message.params.get("notifications")
        asked = wanted if isinstance(wanted, dict) else {}
        honored = [kind for kind in _listed(offered) if asked.get(f"{kind}ListChanged") is True]
        meta = {SUBSCRIPTION_ID_META_KEY: message.id}
        told = {"notifications": {f"{kind}ListChanged": True for kind in honored}, "_meta": meta}
        acknowledged = shape.notification("notifications/subscriptions/acknowledged", told)
        changed = {kind: _list_changed(kind, {"_meta": meta}) for kind in honored}
        ended = shape.frame(shape.response(message, {"_meta": meta}))
        return EventStream(self._told_of_changes(place, acknowledged, changed), last=ended)

    async def _told_of_changes(
        self, place: _Place, first: Json | None, changed: dict[Kind, Json]
    ) -> AsyncGenerator[bytes, None]:
        run, servers = await self._catalog.campaign(place.run, place.server, place.caller)
        async with self._changes.of(run, servers if changed else []) as noted:
            if first is not None:
                yield shape.frame(first)
            async for chunk in notices(changed, noted):
                yield chunk


def _listed(offered: Json) -> list[Kind]:
    """The lists at a place whose changes are told."""
    return ["tools", *(kind for kind in READS if offered.get(kind, {}).get("listChanged"))]


def _list_changed(kind: Kind, params: Json) -> Json:
    return shape.notification(f"notifications/{kind}/list_changed", params)


_Answer = Callable[[McpDoor, _Place, Exchange], Awaitable[Response]]
_LEGACY: Final[dict[str, _Answer]] = {
    "initialize": McpDoor._initialize,
    "ping": McpDoor._ping,
    "tools/list": McpDoor._tools,
}
_MODERN: Final[dict[str, _Answer]] = {
    "server/discover": McpDoor._discover,
    "ping": McpDoor._ping,
    "tools/list": McpDoor._tools,
}
