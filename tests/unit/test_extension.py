"""Readers of what tool servers declare: valid parts are kept, broken ones named, nothing ever raises."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takeback.extension import (
    EXTENSION,
    UndoTemplate,
    read_definition,
    read_effects,
    read_observation,
    read_result,
    read_undo_answer,
)

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
WEEK = UndoTemplate(kind="compensate", window=timedelta(days=7), undo_authority="owner")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = [
    "role", "tier", "app", "readOnly", "versioned", "carriesBefore", "resource", "uses", "undo", "money", "secret",
    "kind", "via", "window", "undoBy", "undoAuthority", "sideEffects", "compensationToken", "ifVersion", "ifVersions",
    "effect", "effects", "broadcasts", "before", "version", "fields", "changes", "field", "old", "new", "mayChange",
    "outcome", "remaps", "from", "to", "detail", "exists", "call", "meta", "result",
]  # fmt: skip
LIKELY = st.sampled_from(
    ["compensate", "none", "api", "high", "P7D", "-P7D", "P99999999D", "2026-12-01T00:00:00Z", "2026-12-01", "reverted",
     "committed", "crm://a/{b}", "crm://a/{b", "", "t"]
)  # fmt: skip
DECLARED = st.recursive(
    JSON | LIKELY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=8),
    max_leaves=20,
)


@given(DECLARED)
def test_no_declaration_raises_and_what_is_read_is_json_again(raw: Any) -> None:
    """J11."""
    meta = {EXTENSION: raw}
    for read in (
        read_definition(meta),
        read_result(meta, WEEK, AT),
        read_result(raw, WEEK, AT),
        read_undo_answer(raw, WEEK, AT),
        read_observation(raw),
    ):
        json.dumps(read.wire())
    read_effects(raw)


@given(DECLARED)
def test_an_undo_that_can_be_dispatched_was_declared_whole(raw: Any) -> None:
    """J8, S8: compensate is only believed with a token and with nothing of it unresolved."""
    read = read_result({EXTENSION: raw}, UndoTemplate(), AT)
    if read.undo.kind == "compensate":
        assert read.undo.compensation_token
        doubtful = ("undo.kind", "undo.undoBy", "undo.compensationToken", "undo.ifVersion", "undo.via")
        assert not any(item.field.startswith(doubtful) for item in read.unresolved)


@given(DECLARED)
def test_an_undo_answer_is_reverted_only_where_it_says_so(raw: Any) -> None:
    """S8."""
    said = raw.get("outcome") if isinstance(raw, dict) else None
    assert (read_undo_answer(raw, WEEK, AT).outcome == "reverted") == (said == "reverted")


@given(
    st.dictionaries(st.sampled_from(["tier", "uses", "money", "secret", "resource", "versioned"]), JSON, max_size=6),
    st.sampled_from(["critical", "low"]),
)
def test_a_broken_member_never_hides_a_valid_one(broken: dict[str, Any], tier: str) -> None:
    """J11."""
    declared = broken | {"tier": tier, "undo": {"kind": "compensate", "window": "P7D"}}
    read = read_definition({EXTENSION: declared})
    assert read.tier == tier
    assert read.undo.kind == "compensate" and read.undo.window == timedelta(days=7)


def test_nothing_declared_is_unknown() -> None:
    """J9."""
    for meta in (None, {}, {"other": 1}, [], "x"):
        assert read_definition(meta).declared is False
        assert read_definition(meta).undo.kind == "unknown"
        assert read_result(meta, UndoTemplate(), AT).undo.kind == "unknown"


@pytest.mark.parametrize(
    ("undo", "field"),
    [
        ({"kind": "magic", "compensationToken": "t"}, "undo.kind"),
        ({"kind": "compensate", "compensationToken": "t", "undoBy": "soon"}, "undo.undoBy"),
        ({"kind": "compensate", "compensationToken": "t", "undoBy": "2026-12-01T00:00:00"}, "undo.undoBy"),
        ({"kind": "compensate", "compensationToken": "t", "undoBy": 1796083200}, "undo.undoBy"),
        ({"kind": "compensate"}, "undo.compensationToken"),
        ({"kind": "compensate", "compensationToken": ""}, "undo.compensationToken"),
        ({"kind": "compensate", "compensationToken": ["t"]}, "undo.compensationToken"),
        ({"kind": "compensate", "compensationToken": "t", "ifVersion": 3}, "undo.ifVersion"),
        ({"kind": "compensate", "compensationToken": "t", "via": "post"}, "undo.via"),
        ("yes", "undo"),
    ],
)
def test_a_broken_undo_is_unknown_and_names_its_part_and_the_effect_stands(undo: Any, field: str) -> None:
    """J11: unresolved is not irreversible, and the rest of the declaration is kept."""
    effect = {"resource": "crm://acme/deal/1", "version": "v2", "changes": [{"field": "stage", "old": "a", "new": "b"}]}
    read = read_result({EXTENSION: {"undo": undo, "effect": effect}}, UndoTemplate(), AT)
    assert read.undo.kind == "unknown"
    assert field in [item.field for item in read.unresolved]
    assert read.effects[0].resource == "crm://acme/deal/1" and read.effects[0].changes[0].new == "b"


def test_a_result_outranks_its_template_and_the_template_completes_it() -> None:
    """J8."""
    bare = read_result({EXTENSION: {"undo": {"compensationToken": "t", "ifVersion": "v"}}}, WEEK, AT).undo
    assert (bare.kind, bare.undo_by, bare.undo_authority) == ("compensate", AT + timedelta(days=7), "owner")
    said = {"kind": "none", "undoAuthority": "sub-1"}
    outranked = read_result({EXTENSION: {"undo": said}}, WEEK, AT)
    assert (outranked.undo.kind, outranked.undo.undo_authority, outranked.unresolved) == ("none", "sub-1", [])


def test_one_broken_change_or_effect_among_several_is_named_and_the_others_stay() -> None:
    """J11."""
    effects = [{"resource": "a:1", "changes": [{"field": "x"}, {"old": 1}]}, "no", {"resource": "a:2", "before": 3}]
    read = read_result({EXTENSION: {"effects": effects, "broadcasts": [{"type": "t"}, 1]}}, UndoTemplate(), AT)
    assert [effect.resource for effect in read.effects] == ["a:1", "a:2"]
    assert [change.field for change in read.effects[0].changes] == ["x"]
    assert read.broadcasts == [{"type": "t"}]
    assert {item.field for item in read.unresolved} == {
        "effects[0].changes[1].field", "effects[1]", "effects[2].before", "broadcasts[1]",
    }  # fmt: skip


def test_a_null_before_is_a_record_that_did_not_exist() -> None:
    read = read_result({EXTENSION: {"effect": {"resource": "a:1", "before": None}}}, UndoTemplate(), AT)
    assert read.effects[0].before is None and read.unresolved == []


def test_an_observed_call_outside_the_vocabulary_is_unknown() -> None:
    """J7: it proves nothing."""
    read = read_observation({"exists": True, "version": "v", "call": {"outcome": "probably"}})
    assert read.call is not None and read.call.outcome == "unknown"
    assert [item.field for item in read.unresolved] == ["call.outcome"]
    assert read_observation("?").exists is None


@pytest.mark.parametrize("end", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_an_end_at_the_edge_of_the_calendar_is_unresolved(end: str) -> None:
    """J11: no reader reckons with it, and an undo without a date that can be read is unknown."""
    offer = {"kind": "compensate", "compensationToken": "t", "undoBy": end}
    read = read_result({EXTENSION: {"undo": offer}}, UndoTemplate(), AT)
    assert (read.undo.kind, read.undo.undo_by) == ("unknown", None)
    assert [item.field for item in read.unresolved] == ["undo.undoBy"]


def test_a_resource_that_no_index_takes_is_unresolved_and_hides_nothing() -> None:
    """J11: the call happened, so its entry is kept, with what can be kept of it."""
    effects = [
        {"resource": "crm://" + "é" * 1000, "version": "1"},
        {"resource": "crm://deal/1", "uses": ["x" * 1501, "y"]},
    ]
    read = read_result({EXTENSION: {"effects": effects}}, UndoTemplate(), AT)
    assert [(effect.resource, effect.uses) for effect in read.effects] == [(None, []), ("crm://deal/1", ["y"])]
    assert [item.field for item in read.unresolved] == ["effects[0].resource", "effects[1].uses[0]"]


TEXT = st.text(max_size=8)
WHOLE = st.fixed_dictionaries(
    {},
    optional={
        "resource": TEXT,
        "before": st.none()
        | st.fixed_dictionaries({}, optional={"version": TEXT, "fields": st.dictionaries(TEXT, JSON, max_size=3)}),
        "version": st.none() | TEXT,
        "changes": st.lists(st.fixed_dictionaries({"field": TEXT}, optional={"old": JSON, "new": JSON}), max_size=3),
        "uses": st.lists(TEXT | st.just("r" * 1501), max_size=3),
        "mayChange": st.lists(TEXT, max_size=2),
        "may_change": JSON,
        "unknown": JSON,
    },
)


@given(WHOLE)
def test_a_broken_member_of_an_effect_changes_nothing_in_the_others(raw: dict[str, Any]) -> None:
    """J11: an effect that is read as a whole says what the same effect says member by member."""
    (whole,), wrong = read_effects({"effect": raw})
    (by_member,), broken = read_effects({"effect": {**raw, "sideEffects": 7}})
    assert by_member == whole
    assert [item.field for item in broken] == [*(item.field for item in wrong), "effect.sideEffects"]
