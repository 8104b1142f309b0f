"""The port to a tool server: five questions, whatever the transport, and errors that carry the decision."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from recorder.prepared import Prepared
from takeback import json
from takeback.extension import Declared, Observation, RequestMeta, UndoAnswer, UndoRequest
from takeback.messages.entry import Effect, Unresolved

OWN: Final = "(manifest)"
"""Stands where a server would name its undo, observe or preview tool: the port has one, the server does not."""
OBSERVE_SECONDS: Final = 5.0
"""How long a server may take to show a record, or what a call would do, while a person waits for it."""


def clause(said: object) -> str:
    """What somebody *said*, to go on behind it: without the full stops at its end."""
    return str(said).strip().rstrip(".")


class ToolPortError(Exception):
    """Something stood between the recorder and a tool server. The subclass says what is known of the call.

    Inside a longer sentence, ``f"{error}. …"``, it stands without a full stop of its own.
    """

    def __format__(self, spec: str) -> str:
        return format(clause(self), spec)


class NotSent(ToolPortError):
    """The request surely never reached the tool: nothing happened there, and asking again is safe."""


class NoAnswer(ToolPortError):
    """The request was sent and no usable answer came: whether the tool ran is unknown (`in_doubt`, J7)."""


class ToolRefused(ToolPortError):
    """The tool server refused the request without running the tool (unknown tool, invalid arguments, 401).

    *status* is the HTTP status where there was one.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServerError(ToolPortError):
    """The tool server answered with a JSON-RPC error, which stands in *answer* as it came."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"The tool server answered: {clause(error.get('message'))}")
        self.answer = error


class Unsupported(ToolPortError):
    """The tool server has no undo, observe or preview. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A tool that an agent may call. *definition* is what the server sent, exactly; *pin* is its hash."""

    name: str
    description: str
    input_schema: dict[str, Any]
    declaration: Declared
    definition: dict[str, Any]
    pin: str


@dataclass(frozen=True, slots=True)
class Description:
    """A tool server as it describes itself. The three tools are names, hidden from agents; None: it has none."""

    name: str
    version: str
    operations: list[Operation]
    undo_tool: str | None = None
    observe_tool: str | None = None
    preview_tool: str | None = None
    tools: dict[str, dict[str, Any]] | None = None
    """The input schemas of all its tools, hidden ones too, where a manifest has to fit them."""
    info: dict[str, Any] = field(default_factory=dict)
    """What the server says of itself (MCP ``serverInfo``), and the instructions that it gives."""
    instructions: str | None = None
    offers: dict[str, Any] = field(default_factory=dict)
    """Its capabilities beside tools that go through the door: resources, prompts, completions."""


class Outcome(NamedTuple):
    """A tool's answer. *result* is the whole MCP CallToolResult; *meta* the raw extension part of its ``_meta``."""

    result: dict[str, Any]
    meta: Any
    is_error: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """What a call would do, as the server's dry run found (P7), and what of that could not be read."""

    effects: list[Effect]
    unresolved: list[Unresolved] = field(default_factory=list)


class ToolPort(Protocol):
    """One tool server. Every method may be used by many callers at once and ends by its *deadline* (seconds).

    Each may raise `NotSent`, `NoAnswer` or `ToolRefused`; preview, observe and undo `Unsupported` too. Cancelling a
    caller leaves the port usable for the others.
    """

    async def describe(self, *, deadline: float) -> Description:
        """Ask the server anew which operations it has and what they declare."""
        ...

    async def call(self, operation: str, arguments: dict[str, Any], meta: RequestMeta, *, deadline: float) -> Outcome:
        """Run *operation* once, for the entry in *meta*. The tool's own error is an `Outcome` with `is_error`."""
        ...

    async def preview(self, operation: str, arguments: dict[str, Any], *, deadline: float) -> Preview:
        """What the call would do; the server's own dry run."""
        ...

    async def observe(self, resource: str | None, *, entry: str | None = None, deadline: float) -> Observation:
        """The record as it is now, and what became of the call with *entry* as its idempotency key."""
        ...

    async def undo(self, request: UndoRequest, *, deadline: float) -> UndoAnswer:
        """Take back what the *request*'s token stands for, if its records still have the versions that it names."""
        ...

    async def close(self) -> None:
        """Give up the connection. The port may not be used afterwards."""
        ...


@runtime_checkable
class SelfMade(Protocol):
    """A port that makes the way back itself, because its server knows of none (a manifest's).

    Such a server keeps no answers for idempotency keys: that an undo is sent once rests on the recorder's claim.
    """

    async def prepare(self, operation: str, arguments: dict[str, Any], *, deadline: float) -> Prepared:
        """Read what the call is about to change. A record that cannot be read is a failure in the answer, not raised."""
        ...

    async def call_prepared(
        self, prepared: Prepared, operation: str, arguments: dict[str, Any], meta: RequestMeta, *, deadline: float
    ) -> Outcome:
        """Run *operation* once, read the records after it, and declare what came of it."""
        ...

    async def look_up(
        self, operation: str, arguments: dict[str, Any], before: Mapping[str, Any], *, deadline: float
    ) -> Outcome | None:
        """What the records prove of a call whose outcome nobody heard; None where they prove nothing.

        *before*: the snapshot as the journal keeps it.
        """
        ...

    async def compensate(
        self,
        token: str,
        *,
        expected: Mapping[str, str | None],
        names: Mapping[str, str],
        force: bool,
        fields: list[str] | None,
        resumed: bool,
        idempotency_key: str,
        deadline: float,
    ) -> UndoAnswer:
        """Take back what *token* stands for, if each record still has its *expected* version.

        *names*: under which name a record is known now. *resumed*: it may have been sent before, so nothing is sent:
        the answer is what the records show.
        """
        ...


@runtime_checkable
class Offering(Protocol):
    """A port whose server can be asked what it offers beside its tools, in MCP's own methods (`recorder.toolport.offers`)."""

    async def ask(self, method: str, params: dict[str, Any], *, deadline: float) -> dict[str, Any]:
        """The result as it came: of a list, or a completion. Nothing of it is journaled.

        Raises like `ToolPort`'s methods, and `ServerError` for what the server answered instead.
        """
        ...


def pin_of(definition: dict[str, Any]) -> str:
    """The hash that pins an operation: SHA-256 (hex) of its definition as canonical JSON."""
    return hashlib.sha256(json.dumps(definition)).hexdigest()
