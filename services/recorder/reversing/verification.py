"""Whether a record is as it was before the call: pure (G8, S5). Reverted means verified."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from takeback.extension import Observation
from takeback.messages.entry import Effect

_ABSENT: Final = object()


def differences(
    effect: Effect,
    seen: Observation,
    *,
    fields: Collection[str] | None = None,
    tolerated: Mapping[str, Any] | None = None,
) -> list[str]:
    """How the record that *seen* shows differs from `effect.before`; empty where the call was taken back.

    A record that the call created must not exist. Else each field of before must have its value, a missing field is no null,
    and a field that the call added must be gone; `mayChange` says which fields may differ. *fields*: only these were taken back
    (a partial undo). *tolerated*: fields that others had changed and that the approver said to go over may keep these values.
    """
    if seen.exists is None:
        return ["the record could not be read"]
    if effect.before is None:
        return ["the record still exists"] if seen.exists else []
    if not seen.exists:
        return ["the record does not exist"]
    if seen.fields is None:
        return ["the record's fields could not be read"]
    wanted = _wanted(effect)
    checked = set(fields) if fields is not None else set(wanted) - set(effect.may_change)
    found = []
    for name in sorted(checked):
        before, now = wanted.get(name, _ABSENT), seen.fields.get(name, _ABSENT)
        if not _same(before, now) and not (tolerated is not None and name in tolerated and now == tolerated[name]):
            found.append(f"{name} is {_told(now)}, it was {_told(before)}")
    return found


def edited_by_others(effect: Effect, seen: Observation) -> dict[str, Any]:
    """Fields that the call itself did not change and that are no longer as before: an override may leave them."""
    if effect.before is None or seen.fields is None:
        return {}
    own = {change.field for change in effect.changes}
    before = effect.before.fields
    return {
        name: value
        for name, value in seen.fields.items()
        if name not in own and name in before and before[name] != value
    }


def unchanged(before: Observation, after: Observation) -> bool:
    """Whether two observations show the same record, untouched in between."""
    if before.exists is None or before.exists != after.exists or before.version != after.version:
        return False
    return before.version is not None or before.fields == after.fields


def _wanted(effect: Effect) -> dict[str, Any]:
    assert effect.before is not None
    wanted: dict[str, Any] = dict(effect.before.fields)
    for change in effect.changes:
        if change.field not in wanted:
            wanted[change.field] = _ABSENT if change.old is None else change.old
    return wanted


def _same(before: Any, now: Any) -> bool:
    if before is _ABSENT or now is _ABSENT:
        return before is now
    return bool(before == now) and isinstance(before, bool) == isinstance(now, bool)


def _told(value: Any) -> str:
    return "not there" if value is _ABSENT else repr(value)[:200]
