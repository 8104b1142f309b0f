"""The records that a call changes: which they are, how they stand, and how expressions see them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recorder.manifest import expressions, uris
from recorder.manifest.expressions import ExpressionFailed, Scope
from recorder.manifest.functions import fingerprint
from recorder.manifest.model import Change, Manifest, Operation, Record, Reference

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """A record as it was read. *why*: it is there and cannot be given back."""

    exists: bool
    version: str | None = None
    fields: Json | None = None
    why: str | None = None

    def scope(self) -> Json:
        """The state as expressions see it."""
        return {
            "exists": self.exists,
            "version": self.version,
            "fields": self.fields,
            "restorable": self.why is None,
            "why": self.why,
        }

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> State:
        """The state that `scope` made."""
        return cls(kept["exists"], kept["version"], kept["fields"], kept["why"])


ABSENT: Final = State(exists=False, version="absent")
"""A record that is not there. Its version is a tombstone, so that a delete can be taken back by itself."""


@dataclass(frozen=True, slots=True)
class Target:
    """One record that a call changes. *failure*: why its state could not be read."""

    name: str
    record: str
    keys: Json
    resource: str
    change: int
    listed: bool = False
    item: Any = None
    before: State | None = None
    after: State | None = None
    now: State | None = None
    failure: str | None = None

    @property
    def changed(self) -> bool:
        """Whether the call left it otherwise than it found it, as far as both were read."""
        if self.before is None or self.after is None:
            return True
        return (self.before.exists, self.before.fields) != (self.after.exists, self.after.fields)

    def scope(self) -> Json:
        """The record as expressions see it in `records`."""
        states = {"before": self.before, "after": self.after, "now": self.now}
        return {"keys": self.keys, "item": self.item} | {
            name: state.scope() for name, state in states.items() if state is not None
        }

    def kept(self) -> Json:
        """The record as a compensation token keeps it."""
        return {
            "name": self.name,
            "record": self.record,
            "keys": self.keys,
            "resource": self.resource,
            "change": self.change,
            "listed": self.listed,
            "item": self.item,
            "before": None if self.before is None else self.before.scope(),
            "after": None if self.after is None else self.after.scope(),
        }

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Target:
        """The record that `kept` made."""
        states = {name: None if kept[name] is None else State.of(kept[name]) for name in ("before", "after")}
        return cls(**{**kept, **states})


def state_of(record: Record, scope: Scope) -> State:
    """The state in what the reads of *record* found. Raises `ExpressionFailed`, also for fields that are no object."""
    if not expressions.holds(record.exists, scope):
        return ABSENT
    fields = expressions.fill(record.fields, scope)
    if not isinstance(fields, dict):
        raise ExpressionFailed(str(record.fields), "the fields of a record are a map")
    missing = [name for name in record.relative if name not in fields]
    if missing:
        raise ExpressionFailed(str(record.fields), f"the relative field {missing[0]} is not among the fields")
    if record.version is None:
        version: Any = fingerprint({name: value for name, value in fields.items() if name not in record.relative})
    else:
        version = expressions.evaluate(record.version, scope)
        if not isinstance(version, str | int) or isinstance(version, bool) or version == "":
            raise ExpressionFailed(record.version, f"a version is text or a number, and this is {version!r:.60}")
    why = next(
        (
            expressions.fill_text(state.why, scope, expressions.plain_text)
            for state in record.unrestorable
            if expressions.holds(state.when, scope)
        ),
        None,
    )
    return State(True, str(version), fields, why)


def named(manifest: Manifest, reference: Reference | Change, scope: Scope) -> list[tuple[str, Json, Any]]:
    """The records that *reference* names: URI, keys and item of each. Raises `ExpressionFailed`."""
    items: list[Any] = [None]
    if reference.each is not None:
        found = expressions.evaluate(reference.each, scope)
        if not isinstance(found, list):
            raise ExpressionFailed(reference.each, "`each` goes over a list")
        items = found
    template = manifest.records[reference.record].uri
    records: dict[str, tuple[str, Json, Any]] = {}
    for item in items:
        here = scope if reference.each is None else {**scope, "item": item}
        keys = {
            name: expressions.plain_text(expressions.fill(value, here), str(value))
            for name, value in reference.keys.items()
        }
        try:
            uri = uris.expand(template, keys)
        except ValueError as error:
            raise ExpressionFailed(str(dict(reference.keys)), str(error)) from error
        records.setdefault(uri, (uri, keys, item))
    return list(records.values())


def targets_of(manifest: Manifest, operation: Operation, index: int, scope: Scope) -> list[Target]:
    """The records of the change at *index*, not read yet. Raises `ExpressionFailed`."""
    change = operation.changes[index]
    return [
        Target(change.name, change.record, keys, uri, index, change.each is not None, item)
        for uri, keys, item in named(manifest, change, scope)
    ]


def reads_only(operation: Operation, arguments: Mapping[str, Any]) -> bool:
    """Whether a call with these *arguments* changes nothing; where that cannot be told it is a write."""
    try:
        return expressions.holds(operation.reads, {"arguments": arguments})
    except ExpressionFailed:
        return False


def needs(change: Change | Reference) -> frozenset[str]:
    """What beside the arguments has to be known for the keys of *change*."""
    sources = [*expressions.expressions_in(change.keys), *([change.each] if change.each is not None else [])]
    return frozenset(name for source in sources for name in expressions.names_in(source)) & {
        "reads",
        "records",
        "result",
    }


def records_in(operation: Operation, targets: Sequence[Target]) -> Json:
    """`records`, as expressions see it: one record, or a list of them where its change has `each`."""
    scope: Json = {}
    for index, change in enumerate(operation.changes):
        found = [target.scope() for target in targets if target.change == index]
        if change.each is not None:
            scope[change.name] = found
        elif found:
            scope[change.name] = found[0]
    return scope


def record_named(manifest: Manifest, resource: str) -> tuple[str, Json] | None:
    """The kind and the keys of the record that *resource* names; None where it is none of this manifest's."""
    for name, record in manifest.records.items():
        keys = uris.match(record.uri, resource)
        if keys is not None:
            return name, keys
    return None


def target_scope(target: Target | None) -> Json:
    """What a way back calls by short names: the record's own keys and states."""
    return {} if target is None else target.scope()
