"""A tool server that speaks MCP, over whichever transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from recorder.toolport import answers, offers
from recorder.toolport.hearing import Kind, Progress, hearing
from recorder.toolport.mcp_codes import CLOSED, NOT_SENT, PROTOCOL_REFUSALS, REFUSED, SESSION_GONE, of_the_way
from recorder.toolport.mcp_connection import Connect, Connection, Sent, request
from recorder.toolport.mcp_post import HttpPosts
from recorder.toolport.port import (
    Description,
    NoAnswer,
    NotSent,
    Outcome,
    Preview,
    ServerError,
    ToolPortError,
    ToolRefused,
    Unsupported,
    clause,
)
from takeback.extension import EXTENSION, Observation, RequestMeta, UndoAnswer, UndoRequest

Json = dict[str, Any]
_T = TypeVar("_T")
_MOST_PAGES = 100


class _Gone(Exception):
    """The connection had ended before the request was sent."""


class McpTool:
    """A `ToolPort` over MCP. One session is kept open and shared; a dead one is replaced at the next use.

    *posts* takes the calls of a server without sessions that nobody wants to hear the progress of.
    """

    def __init__(self, connect: Connect, name: str, posts: HttpPosts | None = None) -> None:
        self._connect = connect
        self._name = name
        self._posts = posts
        self._connection: Connection | None = None
        self._described: Description | None = None
        self._reads: frozenset[str] = frozenset()
        self._closed = False
        self._listeners: set[Callable[[Kind], None]] = set()

    async def describe(self, *, deadline: float) -> Description:
        async def ask(client: Client, left: float) -> Description:
            able = client.server_capabilities
            offered = offers.offered(able)
            # One that offers something else may have no tools, and says so; any other is asked.
            tools = [] if able.tools is None and offered else await _tools(client, left)
            beside = offers.beside(offered, [tool["name"] for tool in tools])
            info = client.server_info
            server = info.model_dump(mode="json", by_alias=True, exclude_none=True) if info is not None else {}
            described = answers.description(server, able.extensions, tools, client.instructions)
            reads = offers.reads(beside)
            self._reads = frozenset(read.name for read in reads)
            return replace(described, operations=[*described.operations, *reads], offers=beside)

        self._described = await self._with_client(ask, deadline)
        return self._described

    async def call(self, operation: str, arguments: Json, meta: RequestMeta, *, deadline: float) -> Outcome:
        heard = hearing.get()
        if heard is None:
            return await self._outcome(operation, arguments, meta, deadline, None)
        if heard.cancelled:
            raise NotSent(f"The caller gave up before anything was sent to {self._name}.")
        with heard.asking() as asking:
            outcome = await self._outcome(operation, arguments, meta, deadline, heard.progress)
        if asking.cancelled_caught:
            raise NoAnswer(f"The caller cancelled the call while {self._name} worked on it.")
        return outcome

    async def ask(self, method: str, params: Json, *, deadline: float) -> Json:
        """See `port.Offering`."""
        return await self._request(method, params, deadline, None)

    async def preview(self, operation: str, arguments: Json, *, deadline: float) -> Preview:
        tool = await self._special("preview", deadline)
        request = {"operation": operation, "arguments": arguments}
        return answers.preview(answers.structured(await self._tool(tool, request, deadline), tool))

    async def observe(self, resource: str | None, *, entry: str | None = None, deadline: float) -> Observation:
        tool = await self._special("observe", deadline)
        request = {"resource": resource, "entry": entry}
        return answers.observation(answers.structured(await self._tool(tool, request, deadline), tool))

    async def undo(self, request: UndoRequest, *, deadline: float) -> UndoAnswer:
        tool = await self._special("undo", deadline)
        return answers.undo_answer(
            answers.structured(await self._tool(tool, answers.undo_arguments(request), deadline), tool)
        )

    @contextmanager
    def changes(self, tell: Callable[[Kind], None]) -> Iterator[None]:
        """See `hearing.Changing`."""
        self._listeners.add(tell)
        if self._connection is not None:
            self._connection.hear_changes()
        try:
            yield
        finally:
            self._listeners.discard(tell)

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            await self._connection.close()
        if self._posts is not None:
            await self._posts.close()

    def _tell(self, kind: Kind) -> None:
        for tell in list(self._listeners):
            tell(kind)

    async def _special(self, role: str, deadline: float) -> str:
        described = self._described or await self.describe(deadline=deadline)
        tool = {"undo": described.undo_tool, "observe": described.observe_tool, "preview": described.preview_tool}[role]
        if tool is None:
            raise Unsupported(f"{self._name} has no {role} tool. Nothing was sent.")
        return tool

    async def _outcome(
        self, operation: str, arguments: Json, meta: RequestMeta, deadline: float, progress: Progress | None
    ) -> Outcome:
        if operation not in self._reads:
            return answers.outcome(await self._tool(operation, arguments, deadline, {EXTENSION: meta.wire()}, progress))
        try:
            return offers.outcome(operation, await self._request(operation, arguments, deadline, progress))
        except ServerError as error:
            return Outcome({"error": error.answer}, None, True)

    async def _request(self, method: str, params: Json, deadline: float, progress: Progress | None) -> Json:
        message = offers.request_of(method, params)

        async def ask(client: Client, left: float) -> Json:
            try:
                return await request(client, message, left, progress)
            except MCPError as error:
                if of_the_way(error):
                    raise
                raise ServerError(error.error.model_dump(mode="json", exclude_none=True)) from error

        answer = await self._with_client(ask, deadline)
        if answer.get("resultType", "complete") != "complete":
            raise NoAnswer(f"{self._name} wants something of the user before it answers {method}.")
        return answer

    async def _tool(
        self, name: str, arguments: Json, deadline: float, meta: Json | None = None, progress: Progress | None = None
    ) -> Json:
        async def send(client: Client, left: float) -> Json:
            params = {"name": name, "arguments": arguments} | ({} if meta is None else {"_meta": meta})
            if self._posts is not None and progress is None and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return await self._posts.call(client, params)
            message = types.CallToolRequest(params=types.CallToolRequestParams.model_validate(params))
            return await request(client, message, left, progress)

        async def ask(client: Client, left: float) -> Json:
            try:
                return await send(client, left)
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH:
                    raise
            # The server wants arguments repeated in headers, as its newest list says which. It ran nothing yet.
            await client.session.list_tools()
            return await send(client, left)

        return await self._with_client(ask, deadline)

    async def _with_client(self, ask: Callable[[Client, float], Awaitable[_T]], deadline: float) -> _T:
        """What *ask* answers on an open connection; once more on a new one when the old had ended before."""
        ends = asyncio.get_running_loop().time() + deadline
        try:
            return await self._once(ask, ends)
        except _Gone:
            pass
        try:
            return await self._once(ask, ends)
        except _Gone as gone:
            raise NotSent(f"{self._name} ends each connection at once; nothing was sent. {gone}") from gone

    async def _once(self, ask: Callable[[Client, float], Awaitable[_T]], ends: float) -> _T:
        if self._closed:
            raise NotSent(f"The port to {self._name} is closed; nothing was sent.")
        if self._connection is None or not self._connection.usable:
            self._connection = Connection(self._connect, self._tell)
            if self._listeners:
                self._connection.hear_changes()
        connection, now = self._connection, asyncio.get_running_loop().time
        with Sent() as sent:
            try:
                async with asyncio.timeout_at(ends):
                    with connection:
                        return await ask(await connection.client(), max(ends - now(), 0.001))
            except TimeoutError as error:
                raise self._timed_out(bool(sent)) from error
            except MCPError as error:
                raise self._meaning(error, bool(sent), connection) from error
            except ValidationError as error:
                raise NoAnswer(
                    f"{self._name} answered with what is no MCP result; what it did is not known."
                ) from error
            except (OSError, RuntimeError, ExceptionGroup) as error:
                connection.retire()
                if sent:
                    raise NoAnswer(
                        f"The connection to {self._name} broke: {clause(error)}. What it did is not known."
                    ) from error
                raise NotSent(f"No connection to {self._name}: {clause(error)}. Nothing was sent.") from error

    def _meaning(self, error: MCPError, sent: bool, connection: Connection) -> Exception:
        """What is known of a request that ended in *error*."""
        data = error.data if isinstance(error.data, dict) else {}
        if error.code == NOT_SENT:
            return NotSent(f"{self._name} was not reached, nothing was sent: {clause(error.message)}.")
        if error.code == REFUSED or error.code in PROTOCOL_REFUSALS:
            return ToolRefused(f"{self._name} refused: {clause(error.message)}.", data.get("status"))
        if error.code == types.REQUEST_TIMEOUT:
            return self._timed_out(sent)
        if error.code == SESSION_GONE or (error.code == types.CONNECTION_CLOSED and error.message == CLOSED):
            connection.retire()
            if error.code == SESSION_GONE or not sent:
                return _Gone(error.message)
        if not sent:
            return NotSent(f"No connection to {self._name}: {clause(error.message)}. Nothing was sent.")
        return NoAnswer(f"{self._name} gave no answer: {clause(error.message)}. What it did is not known.")

    def _timed_out(self, sent: bool) -> ToolPortError:
        if sent:
            return NoAnswer(f"{self._name} did not answer in time; what it did is not known.")
        return NotSent(f"{self._name} was not connected in time; nothing was sent.")


async def _tools(client: Client, deadline: float) -> list[Json]:
    tools: list[Json] = []
    cursor = None
    for _ in range(_MOST_PAGES):
        listed = await request(
            client, types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=cursor)), deadline
        )
        tools += listed["tools"]
        cursor = listed.get("nextCursor")
        if cursor is None:
            break
    return tools
