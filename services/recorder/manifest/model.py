"""A manifest: how an ordinary tool server's calls are recognized, read back and taken back (docs/manifests.md). Pure.

What one part says alone is checked here; what two parts say of each other is checked in `checking`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from recorder.manifest import expressions, uris
from takeback.messages.entry import Tier, Via

Level = Literal["full", "partial", "manual", "none"]


def _expression(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise ValueError("an expression is text")
    expressions.check(value)
    return value


def _template(value: Any) -> Any:
    expressions.check_template(value)
    return value


def _uri(value: str) -> str:
    wrong = uris.problem_in(value)
    if wrong is not None:
        raise ValueError(f"{value} names no records: {wrong}")
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _duration(value: Any) -> Any:
    if not isinstance(value, timedelta) and not (isinstance(value, str) and value.startswith("P")):
        raise ValueError(f"{value!r:.40} is no ISO 8601 duration, which begins with P, as in P7D or PT1H")
    return value


Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
"""A name that expressions can use."""
Tool = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Cel = Annotated[str, BeforeValidator(_expression)]
"""A CEL expression."""
Template = Annotated[Any, AfterValidator(_template)]
"""JSON with ``${expression}`` inside its text."""
TemplateText = Annotated[str, AfterValidator(_template)]
Templates = dict[str, Template]
Window = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta(0), le=timedelta(days=36_525))]


class Part(BaseModel):
    """What all parts share: names as on the wire, and nothing that is not known."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class Pages(Part):
    """How a read that answers in pages goes on: while *more* holds, again with *next* beside its arguments."""

    items: Cel
    more: Cel
    next: Templates
    most: int = Field(default=100, ge=1, le=10_000)


class Read(Part):
    """One call that changes nothing (or makes a checkpoint), and what it is worth.

    *absent* holds where the server says that there is no such record; *fails* where the answer is no answer.
    """

    id: Word | None = None
    server: Tool | None = None
    call: Tool
    arguments: Templates = Field(default_factory=dict)
    when: Cel = "true"
    absent: Cel = "false"
    fails: Cel = "result.isError"
    value: Cel | None = None
    pages: Pages | None = None


class Unrestorable(Part):
    """A state that is there and cannot be given back: when, and why."""

    when: Cel
    why: TemplateText


class Record(Part):
    """A kind of records: their names, and how one is read. *version* is an expression, else a fingerprint of the fields.

    *relative* fields are amounts that many change at once: they are in no version, and are taken back by difference.
    *may_change* fields need not be as before after an undo.
    """

    uri: Annotated[str, AfterValidator(_uri)]
    read: Annotated[list[Read], BeforeValidator(_listed), Field(min_length=1)]
    exists: Cel = "true"
    fields: Template
    version: Cel | None = None
    unrestorable: list[Unrestorable] = Field(default_factory=list)
    relative: list[str] = Field(default_factory=list)
    may_change: list[str] = Field(default_factory=list)


class Reference(Part):
    """Records of one kind that a call uses: one, or one for each value of *each*."""

    record: Word
    keys: Templates
    each: Cel | None = None


class UndoStep(Part):
    """One call of the way back. *conflict* holds where the server refused because somebody else was there first.

    With *reads* it only looks, and ``result`` in *conflict* is the value of what it saw. *each*: once for each value,
    which it names ``item``.
    """

    id: Word | None = None
    server: Tool | None = None
    call: Tool
    arguments: Templates = Field(default_factory=dict)
    when: Cel = "true"
    each: Cel | None = None
    reads: bool = False
    fails: Cel = "result.isError"
    conflict: Cel = "false"
    value: Cel | None = None
    pages: Pages | None = None


class Branch(Part):
    """One way back, for the calls for which *when* holds; the first that holds is taken.

    *becomes*: by the name of a change, the keys of its records where they are made again under others.
    """

    when: Cel = "true"
    level: Level = "full"
    losses: list[TemplateText] = Field(default_factory=list)
    why: TemplateText | None = None
    side_effects: list[TemplateText] = Field(default_factory=list)
    steps: Annotated[list[UndoStep], BeforeValidator(_listed)] = Field(default_factory=list)
    becomes: dict[Word, Templates] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _says_enough(self) -> Branch:
        if self.level in ("full", "partial") and not self.steps:
            raise ValueError(f"a way back of level {self.level} has steps")
        if self.level in ("manual", "none") and self.steps:
            raise ValueError(f"level {self.level} takes no steps: nothing is done by itself")
        if self.level in ("manual", "none") and self.why is None:
            raise ValueError(f"level {self.level} says why, for whoever approves the call")
        if (self.level == "partial") != bool(self.losses):
            raise ValueError("level partial lists its losses, and only partial has any")
        return self


Branches = Annotated[list[Branch], BeforeValidator(_listed)]


class Change(Part):
    """A record that a call changes, or one for each value of *each*, which is named ``item``.

    *new*: the record's key is known only from the result, and before the call there was no such record. *leaves*: the
    fields exactly as the call leaves them, null where the record is gone: what previews show, and what settles a doubt.
    """

    as_: Word | None = Field(default=None, alias="as")
    record: Word
    keys: Templates
    each: Cel | None = None
    new: bool = False
    leaves: Template = None
    undo: Branches | None = None

    @property
    def foretells(self) -> bool:
        """Whether it says how its records are left."""
        return "leaves" in self.model_fields_set

    @property
    def name(self) -> str:
        """Under which name expressions find it in `records`."""
        return self.as_ or self.record


class Money(Part):
    """The names of the arguments with a call's amount and its ISO 4217 currency (P5)."""

    amount: str
    currency: str


class HttpRequest(Part):
    """The request of an operation of a plain HTTP server; *path* is put behind the server's URL.

    In *path* a value becomes one segment, or keeps its slashes with ``${+expression}``. Null headers and query values
    are left out.
    """

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "PROPFIND", "REPORT", "MKCOL", "MOVE", "COPY"]
    path: str
    query: Templates = Field(default_factory=dict)
    headers: Templates = Field(default_factory=dict)
    json_: Template = Field(default=None, alias="json")
    text: Template = None
    base64: Template = None

    @model_validator(mode="after")
    def _one_body(self) -> HttpRequest:
        if sum(name in self.model_fields_set for name in ("json_", "text", "base64")) > 1:
            raise ValueError("a request has one body: json, text or base64")
        expressions.check_template(self.path.replace("${+", "${"))
        if not self.path.startswith("/"):
            raise ValueError("a path begins with /")
        return self


class Operation(Part):
    """An operation: what its calls change, how its results are read, and its ways back.

    *reads*: that it changes nothing, or the condition over its arguments under which it does not. *before*: reads and
    checkpoints before the call, by name in `reads`; *after*: reads right after it, for the keys of what it made.
    *redo*: its ways back also lead from the state after an undo to the one before it, so that an undo can be taken back.
    """

    description: str | None = None
    input: dict[str, Any] | None = None
    request: HttpRequest | None = None
    hidden: bool = False
    tier: Tier = "medium"
    reads: Cel = "false"
    uses: Annotated[list[Reference], BeforeValidator(_listed)] = Field(default_factory=list)
    fails: Cel = "result.isError"
    nothing: Cel = "false"
    before: Annotated[list[Read], BeforeValidator(_listed)] = Field(default_factory=list)
    after: Annotated[list[Read], BeforeValidator(_listed)] = Field(default_factory=list)
    changes: Annotated[list[Change], BeforeValidator(_listed)] = Field(default_factory=list)
    undo: Branches | None = None
    redo: bool = False
    via: Via = "api"
    window: Window | None = None
    undo_authority: str | None = None
    side_effects: list[str] = Field(default_factory=list)
    money: Money | None = None
    secret: list[str] = Field(default_factory=list)

    @property
    def only_reads(self) -> bool:
        """Whether it never changes anything, whatever its arguments."""
        return self.reads == "true"

    @property
    def foretells(self) -> bool:
        """Whether all that its calls change is known beforehand."""
        return bool(self.changes) and all(change.foretells for change in self.changes)

    @property
    def branches(self) -> list[Branch]:
        """All ways back, the operation's own and those of its records."""
        return [*(self.undo or []), *(branch for change in self.changes for branch in change.undo or [])]

    @model_validator(mode="after")
    def _one_place(self) -> Operation:
        if self.undo is not None and any(change.undo is not None for change in self.changes):
            raise ValueError("the way back is said for the whole call or for each record, not both")
        if self.undo is not None and any(change.each is not None for change in self.changes[:1]):
            raise ValueError(
                "where the first change has `each`, the way back belongs to the change: it has one per record"
            )
        if self.only_reads and (self.changes or self.undo is not None):
            raise ValueError("what only reads changes nothing and has no way back")
        if not self.only_reads and not self.hidden and self.undo is None:
            if not self.changes:
                raise ValueError("a write says its way back: undo with level none and why, at least")
            if any(change.undo is None for change in self.changes):
                raise ValueError("each record of a write has a way back: undo for the call, or for each of its changes")
        if any(branch.steps for branch in self.undo or []) and not self.changes:
            raise ValueError("nothing can be taken back without reading it: say in `changes` which record it is")
        return self


class Doing(Part):
    """A call that conformance makes itself, past the recorder."""

    call: Tool
    arguments: Templates = Field(default_factory=dict)


Doings = Annotated[list[Doing], BeforeValidator(_listed)]


class Case(Part):
    """A call on scratch records by which `takeback conformance` sees that its way back holds (P4).

    Templates know `scratch`, letters and digits that nobody has used. *prepare* comes before the call, *meanwhile* is what
    somebody else does to the same record after it. *expect*: how much of it comes back; without *meanwhile* nobody else
    can be told apart, so only `none` may leave it out.
    """

    name: str
    call: Tool
    arguments: Templates = Field(default_factory=dict)
    prepare: Doings = Field(default_factory=list)
    meanwhile: Doings = Field(default_factory=list)
    cleanup: Doings = Field(default_factory=list)
    expect: Literal["full", "partial", "none"] = "full"

    @model_validator(mode="after")
    def _disturbed(self) -> Case:
        if self.expect != "none" and not self.meanwhile:
            raise ValueError("it says in `meanwhile` what somebody else does, so that a conflict can be seen")
        return self


class Manifest(Part):
    """One server's manifest, version 1."""

    takeback: Literal[1]
    server: str | None = None
    records: dict[Word, Record] = Field(default_factory=dict)
    operations: dict[Tool, Operation] = Field(min_length=1)
    conformance: list[Case] = Field(default_factory=list)
