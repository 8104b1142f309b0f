"""Looking at the records of a manifested server: its reads, page by page, each asked once in a round."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from typing import Any, Final

import orjson

from recorder.manifest import expressions, states
from recorder.manifest.expressions import ExpressionFailed
from recorder.manifest.model import Manifest, Read, UndoStep
from recorder.manifest.states import ABSENT, State
from recorder.toolport.hearing import unheard
from recorder.toolport.port import Outcome, ToolPort, ToolPortError
from takeback import json
from takeback.extension import RequestMeta

Json = dict[str, Any]
_AT_ONCE: Final = 8
_OBSERVER: Final = "observation"


class Unreadable(ToolPortError):
    """A record that could not be read; nothing was changed."""


class Looking:
    """One round of reads at one moment: the same question is asked once. *deadline*: seconds for the whole round."""

    def __init__(
        self,
        manifest: Manifest,
        port: ToolPort,
        reach: Callable[[str], Awaitable[ToolPort]],
        deadline: float,
    ) -> None:
        self.manifest = manifest
        self._port = port
        self._reach = reach
        self._ends = asyncio.get_running_loop().time() + deadline
        self._asked: dict[bytes, asyncio.Future[Json]] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(self._ends - asyncio.get_running_loop().time(), 0.01)

    def afresh(self) -> None:
        """Forget what was asked: the records may have changed since."""
        self._asked.clear()

    async def record(self, name: str, keys: Mapping[str, Any]) -> State:
        """The state of a record now. Raises `Unreadable`."""
        record = self.manifest.records.get(name)
        if record is None:
            raise Unreadable(f"the manifest has no record {name} any more")
        scope: Json = {"keys": dict(keys)}
        try:
            for step in record.read:
                there, scope[step.id or "value"] = await self.look(step, scope)
                if not there:
                    return ABSENT
            return states.state_of(record, scope)
        except ExpressionFailed as error:
            raise Unreadable(f"the manifest's read of {name} failed at {error}") from error

    async def look(self, step: Read | UndoStep, scope: Mapping[str, Any]) -> tuple[bool, Any]:
        """Whether what *step* reads is there, and what it is worth; null where its `when` does not hold.

        Raises `Unreadable`, and `ExpressionFailed`.
        """
        if not expressions.holds(step.when, scope):
            return True, None
        arguments = expressions.fill(step.arguments, scope)
        answer = await self._ask(step, arguments)
        here = {**scope, "result": answer}
        if isinstance(step, Read) and expressions.holds(step.absent, here):
            return False, None
        self._check(step, here)
        if step.pages is None:
            return True, answer if step.value is None else expressions.evaluate(step.value, here)
        items = list(expressions.evaluate(step.pages.items, here))
        for _ in range(step.pages.most):
            if not expressions.holds(step.pages.more, here):
                return True, items
            arguments = {**arguments, **expressions.fill(step.pages.next, here)}
            here = {**scope, "result": await self._ask(step, arguments)}
            self._check(step, here)
            items += expressions.evaluate(step.pages.items, here)
        raise Unreadable(f"{step.call} has more than {step.pages.most} pages")

    async def call(self, step: UndoStep, arguments: Json, key: str) -> Json:
        """Call what changes something; the answer as expressions see it. Raises `ToolPortError`."""
        outcome = await self._send(step.server, step.call, arguments, key)
        return view_of(outcome.result)

    def _check(self, step: Read | UndoStep, here: Json) -> None:
        if expressions.holds(step.fails, here):
            raise Unreadable(f"{step.call} answered: {here['result']['text'][:300] or 'an error'}")

    async def _ask(self, step: Read | UndoStep, arguments: Json) -> Json:
        question = json.dumps([step.server, step.call, arguments])
        asked = self._asked.get(question)
        if asked is None:
            # A context of its own: what the caller of a tool hears or gives up is not about these reads.
            asked = self._asked[question] = asyncio.create_task(self._answer(step, arguments), context=Context())
        return await asyncio.shield(asked)

    async def _answer(self, step: Read | UndoStep, arguments: Json) -> Json:
        try:
            async with self._gate:
                outcome = await self._send(step.server, step.call, arguments, _OBSERVER)
        except ToolPortError as error:
            raise Unreadable(f"{step.call}: {error}") from error
        return view_of(outcome.result)

    async def _send(self, server: str | None, call: str, arguments: Json, key: str) -> Outcome:
        port = self._port if server is None else await self._reach(server)
        with unheard():
            return await port.call(call, arguments, RequestMeta(entry=key, idempotency_key=key), deadline=self.left)


HTTP: Final = "io.github.takeback/http"
"""Where a plain HTTP server's answer stands beside the MCP result that is made of it: status, headers, other bytes."""


def view_of(result: Mapping[str, Any]) -> Json:
    """A tool's result as expressions see it; of plain HTTP servers also `status`, `headers`, `body` and `base64`."""
    content = result.get("content") or []
    texts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    view: Json = {
        "isError": result.get("isError") is True,
        "text": "\n".join(texts),
        "content": content,
        "structured": result.get("structuredContent"),
    }
    http = (result.get("_meta") or {}).get(HTTP)
    if not isinstance(http, Mapping):
        return view
    if http["base64"] is not None:
        return {**view, **http, "text": "", "body": None}
    return {**view, **http, "body": body_of(view["text"], http["headers"].get("content-type", ""))}


def body_of(text: str, kind: str) -> Any:
    """The JSON in an answer of content type *kind*; None where it is none."""
    if "json" not in kind:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
