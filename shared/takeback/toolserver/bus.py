"""The door on NATS: request and reply on five subjects, with the JSON of the MCP extension."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import MaxPayloadError

from takeback import bus, json
from takeback.extension import EXTENSION
from takeback.toolserver.calling import InDoubt
from takeback.toolserver.dispatch import Served
from takeback.toolserver.errors import OperationError, UnknownTool

_log = logging.getLogger("takeback.toolserver")


class Service:
    """A tool server that is being served on a subject."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []
        self._running: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Take no more requests, and finish those that are here."""
        for subscription in self._subscriptions:
            await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py leaves it untyped
        await asyncio.gather(*self._running)

    async def _answer(self, nats: Nats, subject: str, answer: Callable[[Any], Awaitable[Any]]) -> None:
        async def received(message: Msg) -> None:
            # A task each: one slow call must not hold up the others.
            task = asyncio.create_task(_reply(message, answer))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

        queue = subject.replace(".", "-")
        self._subscriptions.append(await nats.subscribe(subject, queue=queue, cb=received))


async def serve(served: Served, nats: Nats, subject: str) -> Service:
    """Serve on ``<subject>.*``; see `ToolServer.serve_nats`."""
    await served.prepare()

    async def describe(_request: Any) -> Any:
        return {
            "serverInfo": {"name": served.name, "version": served.version},
            "capabilities": {"extensions": {EXTENSION: served.capability}},
            "tools": served.tools(),
        }

    async def call(request: Any) -> Any:
        return await served.call(request["name"], request.get("arguments"), request.get("_meta"))

    service = Service()
    answers = {"describe": describe, "call": call, "undo": served.undo, "observe": served.observe,
               "preview": served.preview}  # fmt: skip
    for verb, answer in answers.items():
        await service._answer(nats, f"{subject}.{verb}", answer)
    await bus.settle(nats)
    return service


async def _reply(message: Msg, answer: Callable[[Any], Awaitable[Any]]) -> None:
    """Answer one request; an error is a JSON-RPC error object, as over MCP."""
    try:
        try:
            request = json.loads(message.data or b"{}")
            if not isinstance(request, dict):
                raise TypeError("the request is no JSON object")
        except (ValueError, TypeError) as error:
            document: Any = _error(types.INVALID_REQUEST, f"{error}. Nothing was changed.")
        else:
            document = await answer(request)
    except (OperationError, UnknownTool, KeyError) as error:
        document = _error(types.INVALID_PARAMS, str(error))
    except InDoubt as error:
        document = _error(types.INTERNAL_ERROR, str(error))
    except Exception:
        _log.exception("a request on %s failed", message.subject)
        document = _error(types.INTERNAL_ERROR, "The tool server failed inside; what it did is not known.")
    try:
        await message.respond(json.dumps(document))
    except MaxPayloadError:
        too_large = "The answer is larger than NATS carries; what was done stands."
        await message.respond(json.dumps(_error(types.INTERNAL_ERROR, too_large)))


def _error(code: int, text: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": text}}
