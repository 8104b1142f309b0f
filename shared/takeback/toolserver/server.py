"""The tool server: a registry of records and operations, and the doors through which it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeVar

from nats.aio.client import Client as Nats
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette

from takeback.extension import (
    EXTENSION,
    EXTENSION_VERSION,
    ObserveRequest,
    PreviewRequest,
    RequestMeta,
    Role,
    UndoRequest,
)
from takeback.messages.entry import Tier, UndoKind, Via
from takeback.toolserver import bus, mcp
from takeback.toolserver.calling import Json, call
from takeback.toolserver.errors import OperationError, UnknownTool
from takeback.toolserver.observing import observe, preview
from takeback.toolserver.operation import Operation
from takeback.toolserver.record import Function, Record
from takeback.toolserver.store import PostgresStore
from takeback.toolserver.table import table_record
from takeback.toolserver.undoing import undo

_Model = TypeVar("_Model", bound=BaseModel)

UNDO_TOOL, OBSERVE_TOOL, PREVIEW_TOOL = "takeback_undo", "takeback_observe", "takeback_preview"


class ToolServer:
    """A tool server of the application *name*; its state is in *store*. See the package for an example."""

    def __init__(self, name: str, *, store: PostgresStore, version: str = "1") -> None:
        self.name = name
        self.version = version
        self._store = store
        self._operations: dict[str, Operation] = {}
        self._records: list[Record] = []

    # --- what the author declares ---

    def record(self, resource: str, *, version: str | None = None) -> Record:
        """A kind of record that several operations share; decorate its ``read`` and ``restore``.

        *resource* is a URI template over the operations' arguments (or results); *version* names the field of the
        record that holds its revision.
        """
        return self._known(Record(resource, version=version))

    def table(
        self,
        table: str,
        *,
        resource: str,
        key: str | Sequence[str] | None = None,
        version: str | None = None,
        ignore: Sequence[str] = (),
    ) -> Record:
        """A record that is one row of *table*: reading it and putting it back need no code.

        *key*: the column of each variable of *resource*, in order (absent: they have the same names). *version*: an
        integer column that every write raises. *ignore*: columns that are no part of it (generated ones, counters).
        """
        return self._known(table_record(table, resource, key, version, ignore))

    def operation(
        self,
        *,
        record: Record | Sequence[Record] | None = None,
        resource: str | None = None,
        version: str | None = None,
        tier: Tier = "medium",
        window: str | timedelta | None = None,
        uses: Sequence[str] = (),
        side_effects: Sequence[str] = (),
        undo: UndoKind | None = None,
        undo_side_effects: Sequence[str] = (),
        undo_authority: str | None = None,
        via: Via = "api",
        money: Mapping[Literal["amount", "currency"], str] | None = None,
        secret: Sequence[str] = (),
        carries_before: bool = False,
        external: bool = False,
        name: str | None = None,
    ) -> Callable[[Function], Operation]:
        """Decorate a function that changes something: ``async def f(tx, call, **arguments) -> dict``.

        What it changes: *record* (shared, one or several), or *resource* with the operation's own ``.snapshot`` and
        ``.revert`` (*version* as in `record`). *window*: how long it can be taken back (ISO 8601, ``P7D``; absent: for
        ever). *uses*: URI templates of what it reads. *undo*: ``"none"`` for what cannot be taken back. *money* and
        *secret*: names of arguments. *carries_before*: the recorder need not read the record first, the state before
        comes with the result. *external*: it has an effect outside the database, which is never repeated.
        """
        if record is not None and resource is not None:
            raise TypeError("an operation has a record or a resource of its own, not both")
        records = [record] if isinstance(record, Record) else list(record or [])
        if resource is not None:
            records = [self.record(resource, version=version)]

        def decorate(function: Function) -> Operation:
            return self._add(
                Operation(
                    function,
                    records=records,
                    tier=tier,
                    window=window,
                    uses=uses,
                    side_effects=side_effects,
                    undo_side_effects=undo_side_effects,
                    undo=undo,
                    undo_authority=undo_authority,
                    via=via,
                    money=money,
                    secret=secret,
                    carries_before=carries_before,
                    external=external,
                    read_only=False,
                    name=name,
                    inline=resource is not None,
                )
            )

        return decorate

    def read(
        self,
        *,
        record: Record | None = None,
        resource: str | None = None,
        uses: Sequence[str] = (),
        tier: Tier = "low",
        secret: Sequence[str] = (),
        name: str | None = None,
    ) -> Callable[[Function], Operation]:
        """Decorate a function that only reads. It used *uses*, else *record* or *resource*, and what ``call.used`` says."""
        templates = [record] if record is not None else [Record(resource)] if resource is not None else []

        def decorate(function: Function) -> Operation:
            return self._add(
                Operation(
                    function,
                    records=templates,
                    tier=tier,
                    window=None,
                    uses=uses,
                    side_effects=(),
                    undo_side_effects=(),
                    undo="none",
                    undo_authority=None,
                    via="api",
                    money=None,
                    secret=secret,
                    carries_before=False,
                    external=False,
                    read_only=True,
                    name=name,
                    inline=False,
                )
            )

        return decorate

    def _add(self, operation: Operation) -> Operation:
        if operation.name in self._operations or operation.name in {UNDO_TOOL, OBSERVE_TOOL, PREVIEW_TOOL}:
            raise TypeError(f"{self.name} has two operations named {operation.name}")
        self._operations[operation.name] = operation
        return operation

    def _known(self, record: Record) -> Record:
        if any(other.template == record.template for other in self._records):
            # Two ways to read one record would see two versions of it: every undo would look like a conflict.
            raise TypeError(f"{record.template} is declared twice; let its operations share one record=")
        self._records.append(record)
        return record

    # --- the doors ---

    def http_app(self, *, secret: str | None, path: str = "/mcp") -> Starlette:
        """MCP over streamable HTTP, of both protocol eras.

        Who does not send ``Authorization: Bearer <secret>`` gets 401; *secret* None lets everybody on this host in.
        """
        return mcp.http_app(self, secret, path)

    async def serve_stdio(self) -> None:
        """MCP over this process's stdin and stdout, until stdin ends."""
        await mcp.serve_stdio(self)

    async def serve_nats(self, nats: Nats, subject: str) -> bus.Service:
        """Answer on ``<subject>.describe``, ``.call``, ``.undo``, ``.observe`` and ``.preview``, until closed.

        Several processes may serve one subject: each request goes to one of them.
        """
        return await bus.serve(self, nats, subject)

    # --- what the doors ask ---

    async def prepare(self) -> None:
        """Make what the SDK keeps in the database. Every door does it first."""
        await self._store.prepare()

    @property
    def capability(self) -> Json:
        """What ``capabilities.extensions`` says of undo."""
        return {
            "version": EXTENSION_VERSION,
            "undoTool": UNDO_TOOL,
            "observeTool": OBSERVE_TOOL,
            "previewTool": PREVIEW_TOOL,
        }

    def tools(self) -> list[Json]:
        """The MCP tool definitions, the three for the recorder last."""
        ours: list[tuple[str, Role, type[BaseModel], str]] = [
            (UNDO_TOOL, "undo", UndoRequest, "Take back a call."),
            (OBSERVE_TOOL, "observe", ObserveRequest, "Look at a record, and at what became of a call."),
            (PREVIEW_TOOL, "preview", PreviewRequest, "Find what a call would do, without doing it."),
        ]
        return [operation.definition() for operation in self._operations.values()] + [
            {
                "name": name,
                "description": text,
                "inputSchema": model.model_json_schema(by_alias=True),
                "_meta": {EXTENSION: {"role": role}},
            }
            for name, role, model, text in ours
        ]

    async def call(self, name: str, arguments: Any, meta: Any = None) -> Json:
        """Run an operation and answer with its MCP result. *meta*: the request's ``_meta``.

        Raises `UnknownTool`, and `OperationError` for a ``_meta`` that cannot be read: nothing was run.
        """
        operation = self._operation(name)
        part = meta.get(EXTENSION) if isinstance(meta, Mapping) else meta
        return await call(self._store, operation, arguments, _validated(RequestMeta, part))

    async def undo(self, arguments: Any) -> Json:
        """Answer the undo tool."""
        return await undo(self._store, self._operations, _validated(UndoRequest, arguments))

    async def observe(self, arguments: Any) -> Json:
        """Answer the observe tool. Raises `UnknownTool` for a resource of another server."""
        return await observe(self._store, self._records, _validated(ObserveRequest, arguments))

    async def preview(self, arguments: Any) -> Json:
        """Answer the preview tool. Raises `UnknownTool`, and `OperationError` where the call itself would fail."""
        request = _validated(PreviewRequest, arguments)
        return await preview(self._store, self._operation(request.operation), request.arguments)

    def _operation(self, name: str) -> Operation:
        try:
            return self._operations[name]
        except KeyError:
            raise UnknownTool(f"{self.name} has no operation {name}") from None


def _validated(model: type[_Model], arguments: Any) -> _Model:
    try:
        return model.model_validate({} if arguments is None else arguments)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        raise OperationError(f"The request cannot be read: {wrong}. Nothing was changed.") from error
