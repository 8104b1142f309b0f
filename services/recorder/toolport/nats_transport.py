"""A tool server on the bus: request and reply on the five subjects under its own."""

from __future__ import annotations

from typing import Any

from mcp_types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from nats.aio.client import Client as Nats
from nats.errors import ConnectionClosedError, ConnectionDrainingError, MaxPayloadError, NoRespondersError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from recorder.toolport import answers
from recorder.toolport.port import Description, NoAnswer, NotSent, Outcome, Preview, ToolRefused, Unsupported, clause
from takeback import json
from takeback.extension import EXTENSION, Observation, RequestMeta, UndoAnswer, UndoRequest

Json = dict[str, Any]
_NOT_RUN = {INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND}


class NatsTool:
    """A `ToolPort` over NATS. The connection is the recorder's own and stays open when the port closes."""

    def __init__(self, nats: Nats, subject: str) -> None:
        self._nats = nats
        self._subject = subject
        self._capability: Json | None = None

    async def describe(self, *, deadline: float) -> Description:
        raw = await self._ask("describe", {}, deadline)
        extensions = (raw.get("capabilities") or {}).get("extensions") or {}
        self._capability = extensions.get(EXTENSION) or {}
        tools = [
            tool for tool in raw.get("tools") or [] if isinstance(tool, dict) and isinstance(tool.get("name"), str)
        ]
        return answers.description(raw.get("serverInfo") or {}, extensions, tools)

    async def call(self, operation: str, arguments: Json, meta: RequestMeta, *, deadline: float) -> Outcome:
        request = {"name": operation, "arguments": arguments, "_meta": {EXTENSION: meta.wire()}}
        return answers.outcome(await self._ask("call", request, deadline))

    async def preview(self, operation: str, arguments: Json, *, deadline: float) -> Preview:
        await self._require("preview", deadline)
        return answers.preview(await self._ask("preview", {"operation": operation, "arguments": arguments}, deadline))

    async def observe(self, resource: str | None, *, entry: str | None = None, deadline: float) -> Observation:
        await self._require("observe", deadline)
        return answers.observation(await self._ask("observe", {"resource": resource, "entry": entry}, deadline))

    async def undo(self, request: UndoRequest, *, deadline: float) -> UndoAnswer:
        await self._require("undo", deadline)
        return answers.undo_answer(await self._ask("undo", answers.undo_arguments(request), deadline))

    async def close(self) -> None:
        """Nothing to give up: the connection belongs to the recorder."""

    async def _require(self, role: str, deadline: float) -> None:
        if self._capability is None:
            await self.describe(deadline=deadline)
        if not (self._capability or {}).get(f"{role}Tool"):
            raise Unsupported(f"The tool server on {self._subject} has no {role}. Nothing was sent.")

    async def _ask(self, verb: str, request: Json, deadline: float) -> Json:
        subject = f"{self._subject}.{verb}"
        if not self._nats.is_connected:
            raise NotSent(f"There is no connection to NATS; nothing was sent to {subject}.")
        try:
            reply = await self._nats.request(subject, json.compact(request), timeout=deadline)
        except NoRespondersError as error:
            raise NotSent(f"Nobody serves {subject}; nothing was done.") from error
        except (ConnectionClosedError, ConnectionDrainingError, MaxPayloadError) as error:
            raise NotSent(f"Nothing was sent to {subject}: {clause(error)}.") from error
        except NatsTimeoutError as error:
            raise NoAnswer(f"{subject} did not answer within {deadline:g} s; what it did is not known.") from error
        except NatsError as error:
            raise NoAnswer(f"{subject} may have been asked, no answer came: {clause(error)}.") from error
        return _answer(reply.data, subject)


def _answer(data: bytes, subject: str) -> Json:
    try:
        answer = json.loads(data)
    except ValueError as error:
        raise NoAnswer(f"{subject} answered with no JSON; what it did is not known.") from error
    if not isinstance(answer, dict):
        raise NoAnswer(f"{subject} answered with no JSON object; what it did is not known.")
    error_object = answer.get("error")
    if error_object is None:
        return answer
    code, text = (error_object.get("code"), error_object.get("message")) if isinstance(error_object, dict) else (0, "")
    if code in _NOT_RUN:
        raise ToolRefused(f"{subject} refused: {text}")
    raise NoAnswer(f"{subject} failed: {clause(text)}. What it did is not known.")
