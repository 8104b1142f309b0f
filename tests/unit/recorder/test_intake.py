"""Intake: what a declaration says is kept, what it does not is built, what cannot be read is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder import intake
from recorder.intake import Snapshot, changes_between, committed, wants_observation
from recorder.resources import Resources
from takeback.extension import Declared, Observation, UndoTemplate

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
DEAL = "crm://lab/deal/d1"
DECLARED = Declared(
    declared=True,
    versioned=True,
    resource="crm://lab/deal/{id}",
    undo=UndoTemplate(kind="compensate", window=timedelta(days=7)),
)
RESOURCES = Resources(DEAL)
BEFORE = Snapshot(DEAL, Observation(exists=True, version="v1", fields={"stage": "new", "owner": "pete"}))
AFTER = Observation(exists=True, version="v2", fields={"stage": "won", "owner": "pete"})
TOKEN = {"undo": {"kind": "compensate", "compensationToken": "t"}}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["undo", "effect", "effects", "kind", "compensationToken", "undoBy", "before", "changes", "resource"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_the_result_outranks_the_template() -> None:
    """J8."""
    meta = {
        "undo": {"kind": "compensate", "compensationToken": "t", "undoBy": "2026-12-01T00:00:00Z", "ifVersion": "v9"}
    }
    undo = committed(meta, DECLARED, RESOURCES, BEFORE, AFTER, AT).undo
    assert (undo.undo_by, undo.if_version) == (datetime(2026, 12, 1, tzinfo=UTC), "v9")
    assert committed(TOKEN, DECLARED, RESOURCES, BEFORE, AFTER, AT).undo.undo_by == AT + timedelta(days=7)


def test_an_effect_that_is_not_told_is_built_from_both_states() -> None:
    taken = committed(TOKEN, DECLARED, RESOURCES, BEFORE, AFTER, AT)
    assert [change.wire() for change in taken.effects[0].changes] == [{"field": "stage", "old": "new", "new": "won"}]
    assert (taken.effects[0].version, taken.undo.if_version) == ("v2", "v2")
    assert [(item.resource, item.role, item.version) for item in taken.touched] == [(DEAL, "changes", "v2")]


def test_a_record_that_was_not_there_has_no_before() -> None:
    nothing = Snapshot(DEAL, Observation(exists=False, version=None, fields=None))
    taken = committed(TOKEN, DECLARED, RESOURCES, nothing, AFTER, AT)
    assert taken.effects[0].before is None
    assert len(taken.effects[0].changes) == 2


def test_without_a_snapshot_and_without_the_servers_own_there_is_no_undo_and_it_says_why() -> None:
    """J4."""
    failed = Snapshot(DEAL, failure="no answer")
    taken = committed(TOKEN, DECLARED, RESOURCES, failed, None, AT)
    assert taken.undo.kind == "unknown"
    assert "no answer" in (taken.undo.why or "")
    own = TOKEN | {"effect": {"resource": DEAL, "before": {"version": "v1", "fields": {}}, "version": "v2"}}
    assert committed(own, DECLARED, RESOURCES, failed, None, AT).undo.kind == "compensate"


def test_only_a_silent_result_makes_the_recorder_look_again() -> None:
    assert wants_observation(TOKEN, DECLARED, BEFORE)
    assert not wants_observation(TOKEN | {"effect": {"version": "v2"}}, DECLARED, BEFORE)
    assert not wants_observation(TOKEN, DECLARED, None)


def test_a_failed_call_leaves_nothing_to_take_back() -> None:
    """J2."""
    assert intake.failed(DECLARED, RESOURCES).undo.kind == "none"


@given(json_values)
def test_no_declaration_can_raise_or_promise_an_undo_without_a_token(meta: Any) -> None:
    """J11."""
    for declared in (DECLARED, Declared(), DECLARED.model_copy(update={"read_only": True})):
        taken = committed(meta, declared, RESOURCES, BEFORE, AFTER, AT)
        if taken.undo.kind == "compensate":
            assert taken.undo.compensation_token


fields = st.dictionaries(st.sampled_from("abcd"), st.none() | st.integers(0, 2), max_size=4)


@given(fields, fields)
def test_the_changes_between_two_states_lead_from_one_to_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    changes = changes_between(old, new)
    assert {**old, **{change.field: change.new for change in changes}} == {**dict.fromkeys(old), **new}
    assert not changes_between(old, old)
    assert all(change.old == old.get(change.field) for change in changes)


@given(fields)
def test_a_snapshot_reads_back_as_it_was_kept(seen: dict[str, Any]) -> None:
    """J6."""
    kept = Snapshot(DEAL, Observation(exists=True, version="v1", fields=seen))
    assert Snapshot.of(kept.wire()) == kept
    assert Snapshot.of(Snapshot(DEAL, failure="why").wire()) == Snapshot(DEAL, failure="why")
    assert Snapshot.of(None) is None
