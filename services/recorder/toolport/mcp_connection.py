"""One open MCP connection, shared by many callers and owned by a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context, ContextVar
from types import TracebackType
from typing import Any, Final, Self

import mcp_types as types
import structlog
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel

from recorder.toolport.hearing import Kind, Progress
from recorder.toolport.mcp_codes import of_the_way
from takeback.tasks import end

log = structlog.get_logger()
Connect = Callable[[], AbstractAsyncContextManager[TransportStreams]]
Json = dict[str, Any]

_AGAIN_SECONDS: Final = 2.0
_LONGEST_AGAIN_SECONDS: Final = 60.0
"""Until a server that stopped telling is asked to go on: first, and at most, for each time it is twice as long."""
_TOLD: Final[dict[type, Kind]] = {
    types.ToolListChangedNotification: "tools",
    types.ResourceListChangedNotification: "resources",
    types.PromptListChangedNotification: "prompts",
    ToolsListChanged: "tools",
    ResourcesListChanged: "resources",
    PromptsListChanged: "prompts",
}
"""Which list has changed: as a 2025-11-25 server says it unasked, and a 2026-07-28 one to who listens."""

_sent: ContextVar[list[bool] | None] = ContextVar("sent", default=None)


class _Raw(RootModel[dict[str, Any]]):
    """A result as it came: what a later revision or an extension adds is not lost."""


class Sent:
    """Whether the request made inside the block was handed to the transport."""

    def __enter__(self) -> Self:
        self._mark: list[bool] = []
        self._token = _sent.set(self._mark)
        return self

    def __exit__(self, *_: object) -> None:
        _sent.reset(self._token)

    def __bool__(self) -> bool:
        return bool(self._mark)


def mark_sent() -> None:
    """The caller's request is on its way (`Sent`)."""
    mark = _sent.get()
    if mark is not None:
        mark.append(True)


class Connection:
    """Opens at once in its own task: whoever waits for it may be cancelled without hurting the others.

    Once retired it takes no new callers and closes after its last one.
    """

    def __init__(self, connect: Connect, changed: Callable[[Kind], None] = lambda _: None) -> None:
        self._connect = connect
        self._changed = changed
        self._hearing: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting
        self._retired = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._callers = 0
        # A context of its own: the handshake is not the request of whoever came first.
        self._task = asyncio.create_task(self._run(), context=Context())

    @property
    def usable(self) -> bool:
        return not self._retired.is_set() and not self._task.done()

    async def client(self) -> Client:
        """The connected client; only inside the block of the connection. Raises what connecting raised."""
        return self._ready.result() if self._ready.done() else await asyncio.shield(self._ready)

    def __enter__(self) -> Self:
        """Until the block ends there is a caller, and a connection that was retired stays open."""
        self._callers += 1
        self._idle.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._callers -= 1
        if self._callers == 0:
            self._idle.set()

    def retire(self) -> None:
        """Take no new callers."""
        self._retired.set()

    def hear_changes(self) -> None:
        """From now on *changed* is called when the server says that a list of its has changed."""
        if self._hearing is None:
            self._hearing = asyncio.create_task(self._hear(), context=Context())

    async def close(self) -> None:
        """Close at once, whoever still waits."""
        await end(self._task, self._hearing)

    async def _run(self) -> None:
        try:
            async with Client(_Watched(self._connect()), cache=None, message_handler=self._on_message) as client:
                self._ready.set_result(client)
                await self._retired.wait()
                await self._idle.wait()
        except asyncio.CancelledError:
            self._fail(ConnectionError("the connection was closed"))
            raise
        except BaseException as error:  # the waiting callers raise it
            self._fail(_cause(error))
        finally:
            self._retired.set()
            if self._hearing is not None:
                self._hearing.cancel()

    async def _on_message(self, message: object) -> None:
        """A 2025-11-25 server tells unasked."""
        if (kind := _TOLD.get(type(message))) is not None:
            self._changed(kind)

    async def _hear(self) -> None:
        """A 2026-07-28 server tells whoever asks to be told; it is asked again where it stopped, and may have missed to."""
        try:
            client = await asyncio.shield(self._ready)
            able = client.server_capabilities
            parts: dict[Kind, Any] = {"tools": able.tools, "resources": able.resources, "prompts": able.prompts}
            wanted = {kind for kind, part in parts.items() if part is not None and part.list_changed}
            if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not wanted:
                return
            missed: set[Kind] = set()
            pause = _AGAIN_SECONDS
            while await self._listen(client, wanted, missed):
                missed = wanted
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_AGAIN_SECONDS)
        except (MCPError, OSError, TimeoutError) as error:
            log.info("a tool server's changes are no longer heard", error=str(error))

    async def _listen(self, client: Client, wanted: set[Kind], missed: set[Kind]) -> bool:
        """Listens once, and tells first what may have been *missed*; whether it is worth to try again."""
        try:
            async with client.listen(
                tools_list_changed="tools" in wanted,
                resources_list_changed="resources" in wanted,
                prompts_list_changed="prompts" in wanted,
            ) as changes:
                for kind in missed:
                    self._changed(kind)
                async for change in changes:
                    if (told := _TOLD.get(type(change))) is not None:
                        self._changed(told)
        except (MCPError, SubscriptionLost, OSError, TimeoutError) as error:
            log.info("a tool server's changes are not heard", error=str(error))
            return not isinstance(error, MCPError) or of_the_way(error)
        return True

    def _fail(self, error: BaseException) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)


async def request(
    client: Client,
    message: types.ClientRequest,
    deadline: float,
    progress: Progress | None = None,
) -> Json:
    """Ask and answer with the result as it came, nothing dropped. Raises `mcp.MCPError`."""
    answer = await client.session.send_request(
        message, _Raw, request_read_timeout_seconds=deadline, progress_callback=progress
    )
    return answer.root


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


class _Watched:
    """A transport whose writes mark the caller's request as sent."""

    def __init__(self, inner: AbstractAsyncContextManager[TransportStreams]) -> None:
        self._inner = inner

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._inner.__aenter__()
        return read, _Marking(write)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class _Marking:
    def __init__(self, inner: WriteStream[SessionMessage]) -> None:
        self._inner = inner

    async def send(self, item: SessionMessage, /) -> None:
        mark_sent()
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)
