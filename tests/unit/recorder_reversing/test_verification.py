"""Reverted means verified: the record field by field."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.reversing.verification import differences, edited_by_others, unchanged
from takeback.extension import Observation
from takeback.messages.entry import Before, Effect, FieldChange
from tests.unit.recorder_reversing.made import records, seen, values


def _effect(before: dict[str, Any] | None, after: dict[str, Any], may_change: list[str] | None = None) -> Effect:
    names = sorted({*(before or {}), *after})
    return Effect(
        resource="a://1",
        before=None if before is None else Before(version="1", fields=before),
        version="2",
        changes=[
            FieldChange(field=name, old=(before or {}).get(name), new=after.get(name))
            for name in names
            if (before or {}).get(name) != after.get(name)
        ],
        may_change=may_change or [],
    )


@given(records, records)
def test_a_record_that_is_exactly_as_before_is_verified(before: dict[str, Any], after: dict[str, Any]) -> None:
    """G8."""
    assert differences(_effect(before, after), seen(before)) == []


@given(records, records, st.data())
def test_any_field_that_differs_is_named_unless_it_may_change(
    before: dict[str, Any], after: dict[str, Any], data: st.DataObject
) -> None:
    """G8, S5."""
    if not before:
        return
    name = data.draw(st.sampled_from(sorted(before)))
    other = data.draw(
        values.filter(lambda value: value != before[name] or isinstance(value, bool) != isinstance(before[name], bool))
    )
    now = seen({**before, name: other})
    (found,) = differences(_effect(before, after), now)
    assert found.startswith(f"{name} is ")
    assert differences(_effect(before, after, [name]), now) == []
    assert differences(_effect(before, after), now, fields=set(before) - {name}) == []
    assert differences(_effect(before, after), now, tolerated={name: other}) == []


@given(records, records, st.data())
def test_a_missing_field_is_no_null(before: dict[str, Any], after: dict[str, Any], data: st.DataObject) -> None:
    """Facts: a missing field is an error and a null is a value."""
    if not before:
        return
    name = data.draw(st.sampled_from(sorted(before)))
    assert differences(_effect(before, after), seen({key: value for key, value in before.items() if key != name}))


def test_a_field_that_the_call_added_must_be_gone() -> None:
    """G8."""
    effect = _effect({"a": 1}, {"a": 1, "b": 2})
    assert differences(effect, seen({"a": 1})) == []
    assert differences(effect, seen({"a": 1, "b": 2})) == ["b is 2, it was not there"]


def test_a_created_record_must_not_exist_and_a_deleted_one_must() -> None:
    """G8."""
    created, deleted = _effect(None, {"a": 1}), _effect({"a": 1}, {})
    assert differences(created, seen(None)) == []
    assert differences(created, seen({"a": 1})) == ["the record still exists"]
    assert differences(deleted, seen(None)) == ["the record does not exist"]
    assert differences(deleted, seen({"a": 1})) == []


def test_a_record_that_could_not_be_read_verifies_nothing() -> None:
    """S5."""
    assert differences(_effect({"a": 1}, {}), Observation()) == ["the record could not be read"]


def test_only_what_the_call_did_not_change_itself_counts_as_edited_by_others() -> None:
    """G5: an override may leave those fields as they were found."""
    effect = _effect({"stage": "open", "owner": "ann"}, {"stage": "won", "owner": "ann"})
    assert edited_by_others(effect, seen({"stage": "lost", "owner": "bob", "note": "new"})) == {"owner": "bob"}


@given(records, records)
def test_a_record_without_versions_is_untouched_only_where_its_fields_are(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Facts: an ETag that is not there."""
    assert unchanged(seen(one, None), seen(other, None)) == (one == other)
    assert unchanged(seen(one, "1"), seen(other, "1"))
    assert not unchanged(seen(one, "1"), seen(other, "2"))
