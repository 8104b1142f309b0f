"""Which records a call changes, what of them has changed, and how an undo should leave them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.manifest import restoring, states, ways
from recorder.manifest.expressions import ExpressionFailed
from recorder.manifest.model import Manifest, Record
from recorder.manifest.states import ABSENT, State, Target

RECORD = Record.model_validate({"uri": "x://{id}", "read": {"call": "get"}, "fields": "${value}"})
COUNTED = RECORD.model_copy(update={"relative": ["count"]})
names = st.sampled_from("abcd")
field_maps = st.dictionaries(names, st.none() | st.integers(0, 3), max_size=4)
states_of_records = st.just(ABSENT) | st.builds(lambda f: State(True, str(sorted(f.items())), f), field_maps)


def target(**states_: State | None) -> Target:
    return Target("x", "x", {"id": "1"}, "x://1", 0, **states_)  # type: ignore[arg-type]


def manifest(**operation: Any) -> Manifest:
    document = {
        "takeback": 1,
        "records": {"x": {"uri": "x://{id}", "read": {"call": "get"}, "fields": "${value}"}},
        "operations": {"put": {"changes": {"record": "x", "keys": {"id": "${arguments.id}"}}, **operation}},
    }
    return Manifest.model_validate(document)


@given(states_of_records, states_of_records)
def test_a_record_has_changed_when_what_it_holds_has(before: State, after: State) -> None:
    same = (before.exists, before.fields) == (after.exists, after.fields)
    assert target(before=before, after=after).changed is not same


@given(states_of_records, states_of_records)
def test_without_somebody_elses_edit_the_undo_wants_exactly_what_was_before(before: State, after: State) -> None:
    """G8."""
    for force in (False, True):
        wanted = restoring.wanted_fields(target(before=before, after=after, now=after), None, force=force)
        assert wanted == before.fields
    now = target(before=before, after=after, now=State(before.exists, "2", before.fields))
    assert restoring.is_restored(RECORD, now)


@given(field_maps, field_maps, field_maps, st.lists(names, unique=True, min_size=1))
def test_single_fields_come_back_and_all_others_stay_as_they_are(
    before: dict[str, Any], after: dict[str, Any], now: dict[str, Any], fields: list[str]
) -> None:
    """G8: field by field."""
    found = target(before=State(True, "1", before), after=State(True, "2", after), now=State(True, "3", now))
    wanted = restoring.wanted_fields(found, fields, force=True)
    assert wanted is not None
    for name in "abcd":
        of = before if name in fields else now
        assert (name in wanted, wanted.get(name)) == (name in of, of.get(name))


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-50, 50))
def test_an_amount_is_back_when_it_moved_by_what_the_call_had_added(before: int, added: int, others: int) -> None:
    def count(value: int) -> State:
        return State(True, "1", {"count": value})

    found = target(before=count(before), after=count(before + added), now=count(before + added + others))
    assert restoring.difference_missed(COUNTED, found, count(before + others)) is None
    assert restoring.difference_missed(COUNTED, found, count(before + others + 1)) is not None


def test_a_version_is_of_the_record_alone_and_an_amount_is_not_in_it() -> None:
    """J10."""

    def version(value: dict[str, Any], record: Record = RECORD) -> str | None:
        return states.state_of(record, {"value": value}).version

    assert version({"a": 1, "b": None}) == version({"b": None, "a": 1}) != version({"a": 1})
    assert version({"a": 1, "count": 1}, COUNTED) == version({"a": 1, "count": 2}, COUNTED)
    assert version({"a": 1}, RECORD.model_copy(update={"version": "value.a"})) == "1"
    for wrong in ("value.missing", "value", "''"):
        with pytest.raises(ExpressionFailed):
            version({"a": 1}, RECORD.model_copy(update={"version": wrong}))


def test_a_state_that_cannot_be_given_back_takes_only_a_way_that_says_so() -> None:
    """J4, J8."""
    full = {"when": "before.exists", "steps": {"call": "put"}}
    found = [target(before=State(True, "1", {"a": 1}, why="it is a picture"))]
    undo = ways.foreseen(manifest(undo=full).operations["put"], found, {"arguments": {}})
    assert (undo.kind, undo.why) == ("none", "it is a picture")
    partial = {"when": "!before.restorable", "level": "partial", "losses": ["the colours"], "steps": {"call": "put"}}
    undo = ways.foreseen(manifest(undo=[partial, full]).operations["put"], found, {"arguments": {}})
    assert (undo.kind, undo.side_effects) == ("compensate", ["Not given back: the colours"])


def test_a_way_that_only_the_result_decides_is_left_open_before_the_call() -> None:
    undo = [{"when": "result.isError", "level": "none", "why": "odd"}, {"steps": {"call": "put"}}]
    operation = manifest(undo=undo).operations["put"]
    assert ways.foreseen(operation, [target(before=ABSENT)], {"arguments": {}}).kind == "compensate"


def test_two_elements_that_name_one_record_are_one_record_and_an_empty_key_is_none() -> None:
    found = manifest(
        changes={"each": "arguments.ids", "record": "x", "keys": {"id": "${item}"}, "undo": {"steps": {"call": "put"}}}
    )
    operation = found.operations["put"]
    named = states.targets_of(found, operation, 0, {"arguments": {"ids": ["a", "a", "b"]}})
    assert [item.resource for item in named] == ["x://a", "x://b"]
    with pytest.raises(ExpressionFailed):
        states.targets_of(found, operation, 0, {"arguments": {"ids": [""]}})
    with pytest.raises(ExpressionFailed):
        states.targets_of(found, operation, 0, {"arguments": {"ids": "ab"}})


@given(states_of_records, states_of_records)
def test_a_token_keeps_a_record_as_it_was(before: State, after: State) -> None:
    found = target(before=before, after=after)
    assert Target.of(found.kept()) == found
