"""Whether records stand as they were, as a call left them, or as an undo should leave them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recorder.intake import changes_between
from recorder.manifest import expressions
from recorder.manifest.expressions import ExpressionFailed, Scope
from recorder.manifest.functions import FUNCTIONS
from recorder.manifest.model import Operation, Record
from recorder.manifest.states import ABSENT, State, Target, target_scope

Json = dict[str, Any]


def wanted_fields(target: Target, fields: Sequence[str] | None, *, force: bool) -> Json | None:
    """What the record's fields are to be after the undo; None where it is not to exist.

    With *fields* only those come back; over somebody else's edit (*force*) only what the call itself changed (G8).
    """
    before, after, now = target.before, target.after, target.now
    assert before is not None
    if not before.exists or before.fields is None:
        return None
    if now is None or not now.exists or now.fields is None or (fields is None and not force):
        return before.fields
    own = fields
    if own is None:
        own = [change.field for change in changes_between(before.fields, after.fields if after is not None else None)]
    kept = {name: value for name, value in now.fields.items() if name not in own}
    return {**kept, **{name: before.fields[name] for name in own if name in before.fields}}


def is_restored(record: Record, target: Target) -> bool:
    """Whether the record, as it is now, is as it was before the call; never for amounts that are taken back by difference."""
    before, now = target.before, target.now
    if before is None or now is None or record.relative:
        return False
    if before.exists != now.exists:
        return False
    loose = set(record.may_change)
    return _strict(before.fields, loose) == _strict(now.fields, loose)


def difference_missed(record: Record, target: Target, then: State) -> str | None:
    """What is wrong with a relative field after the undo: it has to differ from just before by what the call had added."""
    before, after, now = target.before, target.after, target.now
    if not record.relative or before is None or after is None or now is None:
        return None
    if not (before.exists and after.exists and now.exists and then.exists):
        return None
    minus = FUNCTIONS["minus"]
    for name in record.relative:
        states = [state.fields or {} for state in (before, after, now, then)]
        was, left, found, is_ = (fields[name] for fields in states)
        if minus(is_, found) != minus(was, left):
            return f"{name} went from {found} to {is_}, and the call had changed it by {minus(left, was)}"
    return None


def foretold(operation: Operation, targets: Sequence[Target], scope: Scope) -> list[Target] | None:
    """The records as the call is to leave them, in `after`; None where its manifest does not say. Raises `ExpressionFailed`."""
    if not operation.foretells:
        return None
    left: list[Target] = []
    for target in targets:
        template = operation.changes[target.change].leaves
        fields = expressions.fill(template, {**scope, **target_scope(target)})
        if fields is not None and not isinstance(fields, dict):
            raise ExpressionFailed(str(template), "what is left of a record is a map, or null")
        left.append(replace(target, after=ABSENT if fields is None else State(True, None, fields)))
    return left


def is_left_as(foretold: Target, now: Target) -> bool:
    """Whether the record stands exactly as foretold, and otherwise than before: then the call has happened (J7)."""
    assert foretold.after is not None
    after = now.after
    same = after is not None and (after.exists, after.fields) == (foretold.after.exists, foretold.after.fields)
    return same and now.failure is None and now.changed


def _strict(fields: Json | None, loose: set[str]) -> Json:
    return {name: value for name, value in (fields or {}).items() if name not in loose}
