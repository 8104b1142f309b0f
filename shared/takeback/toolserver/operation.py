"""An operation: an author's function with what it declares about itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.alias_generators import to_camel

from takeback.extension import EXTENSION
from takeback.messages.entry import Tier, UndoKind, Via
from takeback.toolserver.binding import Bound
from takeback.toolserver.call import Call
from takeback.toolserver.errors import OperationError
from takeback.toolserver.record import Function, Record, Tx

_INJECTED = {"tx", "call"}
_WINDOW: TypeAdapter[timedelta] = TypeAdapter(timedelta)


class Operation:
    """One tool. Built by `ToolServer.operation` and `ToolServer.read`, which say what the parameters mean."""

    def __init__(
        self,
        function: Function,
        *,
        records: Sequence[Record],
        tier: Tier,
        window: str | timedelta | None,
        uses: Sequence[str],
        side_effects: Sequence[str],
        undo_side_effects: Sequence[str],
        undo: UndoKind | None,
        undo_authority: str | None,
        via: Via,
        money: Mapping[Literal["amount", "currency"], str] | None,
        secret: Sequence[str],
        carries_before: bool,
        external: bool,
        read_only: bool,
        name: str | None,
        inline: bool,
    ) -> None:
        self.name = name or function.__name__
        self.description = inspect.cleandoc(function.__doc__ or "")
        self.records = list(records)
        self.tier: Tier = tier
        self.window = _WINDOW.validate_python(window) if window is not None else None
        self.uses = [Record(template) for template in uses]
        self.side_effects = list(side_effects)
        self.undo_side_effects = list(undo_side_effects)
        self.undo_authority = undo_authority
        self.via: Via = via
        self.carries_before = carries_before
        self.external = external
        self.read_only = read_only
        self._undo = undo
        self._inline = inline
        self._money = dict(money or {})
        self._secret = list(secret)
        self._arguments = _arguments_model(self.name, function)
        self._run = Bound(function, _INJECTED | set(self._arguments.model_fields))
        self._revert: Bound | None = None
        self._preview: Bound | None = None

    # --- what the author adds ---

    def snapshot(self, function: Function) -> Function:
        """Decorate the function that reads what the operation changes: ``(tx, *variables of resource, lock)``."""
        return self._own_record("snapshot").read(function)

    def revert(self, function: Function) -> Function:
        """Decorate the function that takes a call back; it may ask for ``tx``, ``before``, ``after``, ``call``.

        With a resource it gets the resource's variables; without one, the call's arguments and its ``result``.

        An external operation gets the latter two: its revert is the application's own reverse, asked for once,
        whichever records come back with it. What it returns stands for ``result`` when the reversal itself is taken
        back; None, where the application offers no way back from it.
        """
        if self.records and not self.external:
            return self._own_record("revert").restore(function)
        offered = {"tx", "call", "result", *self._arguments.model_fields}
        self._revert = Bound(function, offered)
        return function

    def preview(self, function: Function) -> Function:
        """Decorate a dry run of the author's own: ``(tx, *arguments) -> {field: value that the call would leave}``."""
        self._preview = Bound(function, _INJECTED | set(self._arguments.model_fields))
        return function

    def _own_record(self, what: str) -> Record:
        if not self._inline:
            raise TypeError(f"{self.name}: .{what} needs resource=…; a shared record has its own .read and .restore")
        return self.records[0]

    # --- what the server asks ---

    def parse(self, raw: Any) -> dict[str, Any]:
        """The Python arguments in the wire's.

        Raises `OperationError` that names what is wrong.
        """
        try:
            parsed = self._arguments.model_validate(raw or {})
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
            raise OperationError(f"{self.name} was not run, its arguments are wrong: {wrong}") from error
        return {name: getattr(parsed, name) for name in self._arguments.model_fields}

    async def run(self, tx: Tx | None, call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run the author's function; a result that is no mapping is wrapped as ``{"result": …}``."""
        result = await self._run(tx=tx, call=call, **arguments)
        if isinstance(result, BaseModel):
            return result.model_dump(mode="json", by_alias=True)
        return dict(result) if isinstance(result, Mapping) else {"result": result}

    async def take_back(self, tx: Tx, call: Call, arguments: Mapping[str, Any], result: Any) -> Any:
        """Run the author's revert of an operation that is external, or has no record; what the revert returned."""
        if self._revert is None:
            raise OperationError(f"{self.name} cannot be taken back: nothing says how")
        return await self._revert(tx=tx, call=call, result=result, **arguments)

    async def foretell(self, tx: Tx, call: Call, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the author's own dry run says; None where there is none."""
        return None if self._preview is None else dict(await self._preview(tx=tx, call=call, **arguments))

    def shown(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that a preview may show, by their names on the wire."""
        return {to_camel(name): value for name, value in arguments.items() if name not in self._secret}

    @property
    def undo_kind(self) -> UndoKind:
        """`compensate` where everything that it changes can be put back, else what was said, else `unknown` (J9)."""
        if self._undo is not None:
            return self._undo
        if self.read_only:
            return "none"
        restorable = bool(self.records) and not self.external and all(record.restorable for record in self.records)
        return "compensate" if restorable or self._revert is not None else "unknown"

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, as they are on the wire."""
        schema = self._arguments.model_json_schema(by_alias=True)
        schema.pop("title", None)
        return schema

    def definition(self) -> dict[str, Any]:
        """The MCP tool definition, with everything that the operation declares in its ``_meta``."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": {"readOnlyHint": self.read_only},
            "_meta": {EXTENSION: self._declaration()},
        }

    def _declaration(self) -> dict[str, Any]:
        undo: dict[str, Any] = {"kind": self.undo_kind, "via": self.via}
        if self.window is not None:
            undo["window"] = _duration(self.window)
        if self.undo_authority is not None:
            undo["undoAuthority"] = self.undo_authority
        if self.undo_side_effects:
            undo["sideEffects"] = self.undo_side_effects
        declared: dict[str, Any] = {"tier": self.tier, "undo": undo}
        if self.read_only:
            declared["readOnly"] = True
        elif self.records:
            declared["versioned"] = True
        if self.carries_before and self.records:
            declared["carriesBefore"] = True
        # A template that an argument cannot fill (a new id, known only from the result) is no use before the call.
        if self.records and self._fills(self.records[0]):
            declared["resource"] = self.records[0].wire_template
        uses = [record.wire_template for record in self.uses if self._fills(record)]
        if uses:
            declared["uses"] = uses
        if self._money:
            declared["money"] = {part: to_camel(argument) for part, argument in self._money.items()}
        if self._secret:
            declared["secret"] = [to_camel(argument) for argument in self._secret]
        return declared

    def _fills(self, record: Record) -> bool:
        return set(record.variables) <= set(self._arguments.model_fields)


def _arguments_model(name: str, function: Callable[..., Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.name in _INJECTED:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}: an operation's arguments have names; {parameter} has none")
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        fields[parameter.name] = (annotation, ... if parameter.default is parameter.empty else parameter.default)
    config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")
    model: type[BaseModel] = create_model(f"{name}_arguments", __config__=config, **fields)
    return model


def _duration(window: timedelta) -> str:
    days, seconds = window.days, window.seconds
    return f"P{days}D" if not seconds else f"P{days}DT{seconds}S" if days else f"PT{seconds}S"
