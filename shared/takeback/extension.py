"""What a tool server declares about undo: the MCP extension's one name, its values, and readers that never raise.

A declaration comes from outside and may be broken in any part. Each reader keeps what is valid and names what is not
(`Unresolved`), so that a broken declaration never hides the call it came with (J11, contract.md "How a tool server
declares undo").
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictStr, TypeAdapter

from takeback.lenient import LenientReader, kind_of
from takeback.messages.base import Instant, Message
from takeback.messages.entry import Before, Effect, FieldChange, Tier, UndoKind, Unresolved, Via

EXTENSION = "io.github.takeback/undo"
"""The extension's id: the key in a tool definition's, a result's and a request's ``_meta`` and in capabilities."""

EXTENSION_VERSION = 1
LONGEST_RESOURCE_BYTES = 1500
"""A longer name of a record is unresolved: it is the key of indexes."""
Role = Literal["undo", "observe", "preview"]
CallOutcome = Literal["committed", "failed", "never", "unknown"]
UndoOutcome = Literal["reverted", "already_reverted", "conflict", "unverified", "failed", "unknown"]


# --- what is declared -------------------------------------------------------------------------------------------------


class UndoTemplate(Message):
    """How an operation's calls can be taken back, as its definition says before any call. *window* is a duration."""

    kind: UndoKind = "unknown"
    via: Via = "api"
    window: timedelta | None = None
    undo_authority: str | None = None
    side_effects: list[str] = Field(default_factory=list)
    why: str | None = None


class Money(Message):
    """The names of the arguments that carry a call's amount (a decimal string) and its ISO 4217 currency (P5)."""

    amount: str
    currency: str


class Declared(Message):
    """What a tool definition declares (J15). `declared` is false where it says nothing at all: undo is unknown (J9)."""

    declared: bool = False
    role: Role | None = None
    tier: Tier = "medium"
    app: str | None = None
    read_only: bool = False
    versioned: bool = False
    carries_before: bool = False
    resource: str | None = None
    uses: list[str] = Field(default_factory=list)
    undo: UndoTemplate = UndoTemplate()
    money: Money | None = None
    secret: list[str] = Field(default_factory=list)
    unresolved: list[Unresolved] = Field(default_factory=list)


class UndoOffer(Message):
    """How one call can be taken back, as its result says, completed by the template. Holds the compensation token."""

    kind: UndoKind = "unknown"
    via: Via = "api"
    undo_by: Instant | None = None
    compensation_token: str | None = Field(default=None, repr=False)
    if_version: str | None = None
    if_versions: dict[str, str] | None = None
    undo_authority: str | None = None
    side_effects: list[str] = Field(default_factory=list)
    why: str | None = None


class DeclaredResult(Message):
    """What the result of a call declares: its undo, its effects (none where it says nothing) and its broadcasts."""

    undo: UndoOffer = Field(default_factory=UndoOffer)
    effects: list[Effect] = Field(default_factory=list)
    broadcasts: list[dict[str, Any]] = Field(default_factory=list)
    unresolved: list[Unresolved] = Field(default_factory=list)


# --- what is asked and answered ---------------------------------------------------------------------------------------


class RequestMeta(Message):
    """What a call carries for the tool server: the journal's entry, the idempotency key (the entry's id), the fence.

    *serial_key* names the counter that the fence belongs to; two fences are compared only under one key. Without it a
    server compares them per record.
    """

    entry: str | None = None
    idempotency_key: str | None = None
    fence: int | None = None
    serial_key: str | None = None


class UndoRequest(Message):
    """The undo tool's arguments. *fields*: take back only those. *force* still refuses any version but *if_version*.

    *if_versions* says the same, record by record, where the call changed several.
    """

    compensation_token: str = Field(repr=False)
    if_version: str | None = None
    if_versions: dict[str, str] | None = None
    force: bool = False
    fields: list[str] | None = None
    idempotency_key: str


def _nameable(resource: str) -> str:
    if len(resource.encode("utf-8", "surrogatepass")) > LONGEST_RESOURCE_BYTES:
        raise ValueError(f"a resource has at most {LONGEST_RESOURCE_BYTES} bytes")
    return resource


Resource = Annotated[StrictStr, AfterValidator(_nameable)]


class Remap(Message):
    """A record that was made again under another id."""

    from_: Resource = Field(alias="from")
    to: Resource


class UndoAnswer(Message):
    """What the undo tool says it did.

    `unverified`: it acted, and the record is not as it was before. `unknown` is an answer that could not be read: it proves
    nothing (S8).
    """

    outcome: UndoOutcome
    effects: list[Effect] = Field(default_factory=list)
    undo: UndoOffer | None = None
    remaps: list[Remap] = Field(default_factory=list)
    side_effects: list[str] = Field(default_factory=list)
    detail: str | None = None
    unresolved: list[Unresolved] = Field(default_factory=list)


class ObserveRequest(Message):
    """The observe tool's arguments: a record, the call that an entry made, or both."""

    resource: str | None = None
    entry: str | None = None


class CallAnswer(Message):
    """What became of the call with an idempotency key. `never` promises that the key will be refused from now on."""

    outcome: CallOutcome
    meta: Any = None
    result: dict[str, Any] | None = None


class Observation(Message):
    """A record as it is now. `exists` is None where no record was asked for, or the answer could not be read."""

    exists: bool | None = None
    version: str | None = None
    fields: dict[str, Any] | None = None
    call: CallAnswer | None = None
    unresolved: list[Unresolved] = Field(default_factory=list)


class PreviewRequest(Message):
    """The preview tool's arguments: a call that must not happen."""

    operation: str
    arguments: dict[str, Any] = Field(default_factory=dict)


# --- readers ----------------------------------------------------------------------------------------------------------


def read_definition(meta: Any) -> Declared:
    """What the ``_meta`` of a tool definition declares. Never raises: see the module."""
    part = _part_of(meta)
    if part is None:
        return Declared()
    read = LenientReader(part)
    if not read.is_object:
        return Declared(declared=True, unresolved=read.unresolved)
    return Declared(
        declared=True,
        role=read("role", _ROLE, None),
        tier=read("tier", _TIER, "medium"),
        app=read("app", _TEXT, None),
        read_only=read("readOnly", _BOOL, False),
        versioned=read("versioned", _BOOL, False),
        carries_before=read("carriesBefore", _BOOL, False),
        resource=read("resource", _TEMPLATE, None),
        uses=read.each("uses", _TEMPLATE),
        undo=_undo_template(read.inside("undo")),
        money=read("money", _MONEY, None),
        secret=read.each("secret", _TEXT),
        unresolved=read.unresolved,
    )


def read_result(meta: Any, template: UndoTemplate, at: datetime) -> DeclaredResult:
    """What the ``_meta`` of a call's result declares; what it leaves out of its undo comes from *template*.

    *at* is the instant of the call, from which a template's window runs. An undo of kind compensate whose kind, date,
    token or version cannot be read becomes unknown: it is unresolved, not irreversible (J8, J11).
    """
    part = _part_of(meta)
    read = LenientReader({} if part is None else part)
    return DeclaredResult(
        undo=_undo_offer(read.inside("undo"), template, at),
        effects=_effects(read),
        broadcasts=read.each("broadcasts", _OBJECT),
        unresolved=read.unresolved,
    )


def read_undo_answer(raw: Any, template: UndoTemplate, at: datetime) -> UndoAnswer:
    """What the undo tool answered. An outcome outside the vocabulary is `unknown` (S8)."""
    read = LenientReader(raw)
    outcome = read("outcome", _UNDO_OUTCOME, None)
    if outcome is None:
        read.missing("outcome", "the undo tool did not say what it did")
    return UndoAnswer(
        outcome=outcome or "unknown",
        effects=_effects(read),
        undo=_undo_offer(read.inside("undo"), template, at) if read.has("undo") else None,
        remaps=read.each("remaps", _REMAP),
        side_effects=read.each("sideEffects", _TEXT),
        detail=read("detail", _TEXT, None),
        unresolved=read.unresolved,
    )


def read_observation(raw: Any) -> Observation:
    """What the observe tool answered. A call's outcome outside the vocabulary is `unknown`."""
    read = LenientReader(raw)
    call = None
    if read.has("call"):
        inner = read.inside("call")
        call = CallAnswer(
            outcome=inner("outcome", _CALL_OUTCOME, "unknown"),
            meta=inner.raw.get("meta"),
            result=inner("result", _OBJECT, None),
        )
    return Observation(
        exists=read("exists", _BOOL, None),
        version=read("version", _TEXT, None),
        fields=read("fields", _OBJECT, None),
        call=call,
        unresolved=read.unresolved,
    )


def read_effects(raw: Any) -> tuple[list[Effect], list[Unresolved]]:
    """The effects in an object with ``effect`` or ``effects`` (a preview's answer), and what could not be read."""
    read = LenientReader(raw)
    return _effects(read), read.unresolved


# --- parts ------------------------------------------------------------------------------------------------------------


def _undo_template(read: LenientReader) -> UndoTemplate:
    return UndoTemplate(
        kind=read("kind", _KIND, "unknown"),
        via=read("via", _VIA, "api"),
        window=read("window", _WINDOW, None),
        undo_authority=read("undoAuthority", _TEXT, None),
        side_effects=read.each("sideEffects", _TEXT),
        why=read("why", _TEXT, None),
    )


def _undo_offer(read: LenientReader, template: UndoTemplate, at: datetime) -> UndoOffer:
    kind: UndoKind = read("kind", _KIND, "unknown" if read.broken else template.kind)
    offer = UndoOffer(
        kind=kind,
        via=read("via", _VIA, template.via),
        undo_by=read("undoBy", _INSTANT, at + template.window if template.window is not None else None),
        compensation_token=read("compensationToken", _TOKEN, None),
        if_version=read("ifVersion", _TEXT, None),
        if_versions=read("ifVersions", _VERSIONS, None),
        undo_authority=read("undoAuthority", _TEXT, template.undo_authority),
        side_effects=read.each("sideEffects", _TEXT) or list(template.side_effects),
        why=read("why", _TEXT, template.why),
    )
    if offer.kind == "compensate" and offer.compensation_token is None and "compensationToken" not in read.failed:
        read.missing("compensationToken", "undo of kind compensate needs the token to ask for it")
    doubtful = read.failed & {"kind", "via", "undoBy", "compensationToken", "ifVersion", "ifVersions"}
    if offer.kind != "none" and doubtful:
        return offer.model_copy(update={"kind": "unknown", "why": f"its declaration of {min(doubtful)} is unresolved"})
    return offer


def _effects(read: LenientReader) -> list[Effect]:
    single = [read.inside("effect")] if read.has("effect") else []
    items = read.objects("effects") if read.has("effects") else single
    return [_effect(item) for item in items if item.is_object]


def _effect(read: LenientReader) -> Effect:
    """The effect as a whole where all of it is valid, as it mostly is; else member by member."""
    try:
        effect = Effect.model_validate(read.raw, by_name=False)
        for name in (effect.resource or "", *effect.uses):
            _nameable(name)
    except ValueError:
        return _effect_by_member(read)
    return effect


def _effect_by_member(read: LenientReader) -> Effect:
    before = None
    if read.has("before"):
        inner = read.inside("before")
        before = Before(version=inner("version", _TEXT, None), fields=inner("fields", _OBJECT, {}))
    return Effect(
        resource=read("resource", _RESOURCE, None),
        before=before,
        version=read("version", _TEXT, None),
        changes=read.each("changes", _CHANGE),
        uses=read.each("uses", _RESOURCE),
        may_change=read.each("mayChange", _TEXT),
        side_effects=read.each("sideEffects", _TEXT),
    )


def _part_of(meta: Any) -> Any:
    return meta.get(EXTENSION) if isinstance(meta, Mapping) else None


def _parsed_template(value: Any) -> Any:
    if isinstance(value, str):
        try:
            UriTemplate.parse(value)
        except InvalidUriTemplate as error:
            raise ValueError(f"not a URI template: {error}") from error
    return value


def _text_only(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"a string is needed, not {kind_of(value)}")
    return value


def _within_reach(instant: datetime) -> datetime:
    """Neither end of the calendar: nobody reckons before or behind those (a lead, a day of another zone)."""
    if not 1970 <= instant.year <= 9000:
        raise ValueError("a time of the years 1970 to 9000 is needed; give none where there is no end")
    return instant.astimezone(UTC)


_LONGEST = timedelta(days=36_525)
_TEXT: TypeAdapter[str] = TypeAdapter(StrictStr)
_TOKEN: TypeAdapter[str] = TypeAdapter(Annotated[StrictStr, Field(min_length=1)])
_BOOL: TypeAdapter[bool] = TypeAdapter(StrictBool)
_TIER: TypeAdapter[Tier] = TypeAdapter(Tier)
_KIND: TypeAdapter[UndoKind] = TypeAdapter(UndoKind)
_VIA: TypeAdapter[Via] = TypeAdapter(Via)
_ROLE: TypeAdapter[Role] = TypeAdapter(Role)
_UNDO_OUTCOME: TypeAdapter[UndoOutcome] = TypeAdapter(UndoOutcome)
_CALL_OUTCOME: TypeAdapter[CallOutcome] = TypeAdapter(CallOutcome)
_TEMPLATE: TypeAdapter[str] = TypeAdapter(Annotated[StrictStr, BeforeValidator(_parsed_template)])
_WINDOW: TypeAdapter[timedelta] = TypeAdapter(
    Annotated[timedelta, BeforeValidator(_text_only), Field(gt=timedelta(0), le=_LONGEST)]
)
_INSTANT: TypeAdapter[datetime] = TypeAdapter(
    Annotated[Instant, BeforeValidator(_text_only), AfterValidator(_within_reach)]
)
_RESOURCE: TypeAdapter[str] = TypeAdapter(Resource)
_VERSIONS: TypeAdapter[dict[str, str]] = TypeAdapter(dict[StrictStr, StrictStr])
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[StrictStr, Any])
_CHANGE: TypeAdapter[FieldChange] = TypeAdapter(FieldChange)
_REMAP: TypeAdapter[Remap] = TypeAdapter(Remap)
_MONEY: TypeAdapter[Money] = TypeAdapter(Money)
