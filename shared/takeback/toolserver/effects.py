"""The effect of a call as the wire tells it: the record before and after, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python

from takeback.toolserver.call import Call
from takeback.toolserver.operation import Operation
from takeback.toolserver.record import Fields, State


def changes(before: Fields | None, after: Fields | None) -> list[dict[str, Any]]:
    """Each field that differs, with its old and new value; a field that is not there is null."""
    old, new = before or {}, after or {}
    names = [*old, *(name for name in new if name not in old)]
    return [
        {"field": name, "old": old.get(name), "new": new.get(name)}
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    ]


def effects_of(
    moves: Sequence[tuple[State | None, State]], uses: Sequence[str], call: Call, side_effects: Sequence[str]
) -> list[dict[str, Any]]:
    """One effect for each record that went from one state to another; what was used stands in the first."""
    told = [*side_effects, *call.side_effects]
    if not moves:
        return [_effect(None, None, None, [], uses, call.may_change, told)]
    return [
        _effect(
            now.resource,
            {"version": was.version, "fields": was.fields} if was is not None and was.exists else None,
            now.version,
            changes(was.fields if was is not None else None, now.fields),
            uses if first else [],
            call.may_change if first else [],
            told if first else [],
        )
        for first, (was, now) in ((n == 0, move) for n, move in enumerate(moves))
    ]


def with_effects(effects: list[dict[str, Any]]) -> dict[str, Any]:
    """The ``effect`` of one record, the ``effects`` of several."""
    return {"effect": effects[0]} if len(effects) == 1 else {"effects": effects}


def used_by(operation: Operation, call: Call, *values: Mapping[str, Any]) -> list[str]:
    """The resources that a call read: what it said itself, what its templates name, else what it reads as a read."""
    declared = []
    for record in operation.uses or (operation.records if operation.read_only and not call.uses else []):
        ids = record.ids_in(*values)
        if ids is not None:
            declared.append(record.resource_of(ids))
    return list(dict.fromkeys([*declared, *call.uses]))


def foretold(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The values that a call would leave, where what is there now is not known."""
    return [{"field": to_camel(name), "old": None, "new": to_jsonable_python(value)} for name, value in fields.items()]


def _effect(
    resource: str | None,
    before: dict[str, Any] | None,
    version: str | None,
    changed: list[dict[str, Any]],
    uses: Sequence[str],
    may_change: Sequence[str],
    side_effects: Sequence[str],
) -> dict[str, Any]:
    return {
        "resource": resource,
        "before": before,
        "version": version,
        "changes": changed,
        "uses": list(uses),
        "mayChange": list(may_change),
        "sideEffects": list(side_effects),
    }
