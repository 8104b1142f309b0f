"""`takeback mcp`: the recorder's MCP door for clients that only start processes and speak over stdin and stdout (J16).

It passes messages on and adds nothing but the token and, for the 2026-07-28 era, the headers that HTTP wants repeated. It keeps
nothing: the run is in the address, so any number of them may serve one run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx2
import typer
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from takeback import json
from takeback.cli import fail, run
from takeback.data_folder import DataFolder
from takeback.errors import PROBLEM_JSON, words_of

_CONNECT_SECONDS = 10.0
_LAST_ANSWERS_SECONDS = 30.0  # how long what was asked may still take when the client has closed stdin
_TOKEN_VARIABLE = "TAKEBACK_TOKEN"  # noqa: S105 - its name, not the token


def command(
    run_id: Annotated[str, typer.Option("--run", help="The run whose calls are made here")],
    server: Annotated[str | None, typer.Option(help="One tool server's tools; without it all, as server__tool")] = None,
    url: Annotated[str | None, typer.Option(help="Where Takeback is; without it the stack on --data")] = None,
    token_env: Annotated[str, typer.Option(help="The variable that holds the agent's token")] = _TOKEN_VARIABLE,
    data: Annotated[Path, typer.Option(help="The data folder of a running stack")] = Path("data"),
) -> None:
    """Serve a run's tools over stdin and stdout, for MCP clients that start a process."""
    token = os.environ.get(token_env)
    if not token:
        fail(f"The environment variable {token_env} holds no token. Make one with: takeback token NAME --agent")
    if url is None:
        urls = DataFolder(data).urls()
        if urls is None:
            fail(f"Nothing runs on {data}, and no --url says where Takeback is. Start it with: takeback serve")
        url = urls.http
    place = f"{url.rstrip('/')}/mcp/runs/{run_id}"
    run(serve(place if server is None else f"{place}/{server}", token))


async def serve(url: str, token: str, *, last_answers: float = _LAST_ANSWERS_SECONDS) -> None:
    """Passes messages on between this process's stdin and stdout and the door at *url* until stdin ends.

    What was asked by then is still answered, for at most *last_answers* seconds.
    """
    headers = {"Authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)  # a call lasts as long as the recorder lets it
    open_requests = _OpenRequests()
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=_InWords(), trust_env=False) as http,
        stdio_server() as (of_client, to_client),
        to_client,  # its writer ends when this is closed
        streamable_http_client(url, http_client=http) as (of_door, to_door),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_answer, of_door, to_client, open_requests)
        await _ask(of_client, to_door, open_requests)
        with anyio.move_on_after(last_answers) as waiting:
            await open_requests.none_left()
        if waiting.cancelled_caught:
            told = f"stdin ended, and after {last_answers:g} s more there was no answer to requests {open_requests}"
            typer.echo(f"takeback: {told}. What became of them is in the run's entries.", err=True)
        tasks.cancel_scope.cancel()


class _InWords(httpx2.AsyncHTTPTransport):
    """Turns what goes wrong with one request into an answer that says so: the client reads no HTTP, and goes on."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The door's answer, or a JSON-RPC error in its place."""
        try:
            response = await super().handle_async_request(request)
        except httpx2.ConnectError as error:
            return _error(
                503, f"Takeback cannot be reached at {request.url} ({error}). Nothing was sent; is it running?"
            )
        except httpx2.TransportError as error:
            told = f"The connection to Takeback broke ({words_of(error)}). What became of the request is in"
            return _error(503, f"{told} the run's entries: look there before you ask again.")
        if response.headers.get("content-type") != PROBLEM_JSON:
            return response
        problem = json.loads(await response.aread())
        await response.aclose()
        return _error(response.status_code, str(problem.get("detail")))


def _error(status: int, message: str) -> httpx2.Response:
    document = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": message}}
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=json.dumps(document))


class _OpenRequests:
    """The client's requests that have no answer yet."""

    def __init__(self) -> None:
        self._ids: set[RequestId] = set()
        self._none_left = anyio.Event()

    def __str__(self) -> str:
        return ", ".join(sorted(map(str, self._ids)))

    def asked(self, message: JSONRPCMessage) -> None:
        """Opens a request; a cancellation closes the one that it names, because nobody answers that."""
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._close((message.params or {}).get("requestId"))

    def answered(self, message: JSONRPCMessage) -> None:
        """Closes the request that *message* answers, if it answers one."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._close(message.id)

    async def none_left(self) -> None:
        """Returns when every request is closed; nothing may be asked any more."""
        if self._ids:
            self._none_left = anyio.Event()
            await self._none_left.wait()

    def _close(self, request: RequestId | None) -> None:
        self._ids = {open_id for open_id in self._ids if open_id != request}
        if not self._ids:
            self._none_left.set()


async def _ask(
    of_client: ReadStream[SessionMessage | Exception], to_door: WriteStream[SessionMessage], requests: _OpenRequests
) -> None:
    async for message in of_client:
        if readable := _readable(message):
            requests.asked(readable.message)
            await to_door.send(_with_headers(readable))


async def _answer(
    of_door: ReadStream[SessionMessage | Exception], to_client: WriteStream[SessionMessage], requests: _OpenRequests
) -> None:
    async for message in of_door:
        if readable := _readable(message):
            await to_client.send(readable)
            requests.answered(readable.message)


def _readable(message: SessionMessage | Exception) -> SessionMessage | None:
    if isinstance(message, Exception):
        typer.echo(f"takeback: a message could not be read and was left out: {message}", err=True)
        return None
    return message


def _with_headers(message: SessionMessage) -> SessionMessage:
    """*message* with the headers in which the 2026-07-28 era wants parts of it repeated over HTTP."""
    request: Any = message.message
    params = getattr(request, "params", None) or {}
    version = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
    if not isinstance(request, JSONRPCRequest) or not isinstance(version, str):
        return message
    headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: request.method}
    name = params.get(NAME_BEARING_METHODS.get(request.method, ""))
    if isinstance(name, str):
        headers[MCP_NAME_HEADER] = encode_header_value(name)
    return SessionMessage(request, metadata=ClientMessageMetadata(headers=headers))
