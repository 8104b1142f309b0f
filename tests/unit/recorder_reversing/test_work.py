"""What a plan asks of each step, given what became of the others."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.reversing.work import (
    LETS_PASS,
    Decided,
    Expected,
    Left,
    Run,
    Settled,
    expected_versions,
    must_go_first,
    observed_of,
    resources_of,
    verdict,
)
from takeback.messages.entry import Before, Effect, Undo
from takeback.messages.plan import Conflict, ConflictField, StepOutcome
from tests.unit.recorder_reversing.made import NOW, decided, entry, plans, step

ENDED: list[StepOutcome] = ["reverted", "conflict", "unverified", "failed", "in_doubt", "authority_lost"]
RESOURCE = "crm://deal/1"


@given(plans(), st.data())
def test_nothing_is_taken_back_before_all_that_builds_on_it_is_gone_or_left_out(
    plan: Decided, data: st.DataObject
) -> None:
    """S4, G5: played through to the end with arbitrary outcomes."""
    done: dict[str, StepOutcome] = {}
    for item in plan.plan.steps:
        found = verdict(plan, item, entry(item.entry), done, NOW)
        outcome = found.outcome if isinstance(found, Settled) else data.draw(st.sampled_from(ENDED))
        first = [done[other] for other in must_go_first(plan.plan)[item.entry]]
        if isinstance(found, Run):
            assert all(other in LETS_PASS for other in first)
        elif found.outcome == "blocked":
            assert any(other not in LETS_PASS for other in first)
            assert found.detail
        done[item.entry] = outcome
    assert set(done) == {item.entry for item in plan.plan.steps}
    assert {name for name, outcome in done.items() if outcome == "left_out"} == plan.leave_out


@given(plans())
def test_where_everything_goes_through_nothing_is_blocked(plan: Decided) -> None:
    """S15: what is independent goes on, and what depends only waits its turn."""
    done: dict[str, StepOutcome] = {}
    for item in plan.plan.steps:
        found = verdict(plan, item, entry(item.entry), done, NOW)
        done[item.entry] = found.outcome if isinstance(found, Settled) else "reverted"
    assert set(done.values()) <= {"reverted", "left_out"}


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({"status": "reverted"}, "already_reverted"),
        ({"status": "in_doubt"}, "failed"),
        ({"status": "failed"}, "failed"),
        ({"undo": Undo(kind="unknown")}, "failed"),
        ({"undo": Undo(kind="none")}, "failed"),
        ({"undo": Undo(kind="compensate", undo_by=NOW)}, "failed"),
    ],
)
def test_what_cannot_be_taken_back_is_said_and_not_sent(changed: dict[str, object], outcome: str) -> None:
    """G8, G9, S8."""
    found = verdict(decided(step()), step(), entry(**changed), {}, NOW)
    assert isinstance(found, Settled)
    assert found.outcome == outcome


def test_a_claim_in_hand_is_gone_on_with_after_its_window_has_closed() -> None:
    """G9: the undo may have been sent in time."""
    claimed = entry(status="reverting", undo=Undo(kind="compensate", undo_by=NOW - timedelta(seconds=1)))
    assert verdict(decided(step()), step(), claimed, {}, NOW) == Run()


def test_a_step_for_a_person_runs_only_when_listed_in_override() -> None:
    """J10."""
    item = step(needs_person="ui")
    assert isinstance(verdict(decided(item), item, entry(), {}, NOW), Settled)
    assert verdict(decided(item, override=frozenset({"ent_1"})), item, entry(), {}, NOW) == Run()


@pytest.mark.parametrize(
    ("source", "blocks"), [("declared", True), ("host", True), ("confirmed", True), ("default", False)]
)
def test_a_known_link_to_a_broken_entry_blocks_and_a_default_one_does_not(source: str, blocks: bool) -> None:
    """J11."""
    item = step(because=["ent_9"], source=source)
    found = verdict(decided(item, unresolved=["ent_9"]), item, entry(), {}, NOW)
    assert isinstance(found, Settled) == blocks


def test_a_step_behind_the_one_whose_version_it_expects_waits_for_it() -> None:
    """S11."""
    later, earlier = step("ent_2"), step("ent_1", expects="ent_2")
    assert must_go_first(decided(later, earlier).plan) == {"ent_2": [], "ent_1": ["ent_2"]}


def test_without_an_override_the_version_of_the_plan_is_expected() -> None:
    """G8."""
    item = step(if_version="2", observed_version="5")
    assert expected_versions(decided(item), item, entry(), Left()) == {RESOURCE: Expected("2")}


def test_an_override_expects_exactly_what_the_approver_saw() -> None:
    """G5, G8."""
    item = step(if_version="2", observed_version="5")
    for decision in ({"override": frozenset({"ent_1"})}, {"fields": {"ent_1": ["stage"]}}):
        assert expected_versions(decided(item, **decision), item, entry(), Left()) == {RESOURCE: Expected("5")}


def test_an_override_of_what_nobody_saw_binds_to_nothing_and_is_not_sent() -> None:
    """G8."""
    item = step(observed_version=None)
    assert expected_versions(decided(item, override=frozenset({"ent_1"})), item, entry(), Left()) is None


def test_a_record_without_versions_that_a_person_picked_has_no_version_to_expect() -> None:
    """J10."""
    item = step(if_version=None, observed_version=None, needs_person="no_version")
    bare = Effect(resource=RESOURCE, before=Before(fields={"stage": "open"}))
    unversioned = entry(effect=bare, effects=[bare], undo=Undo(kind="compensate"))
    found = expected_versions(decided(item, override=frozenset({"ent_1"})), item, unversioned, Left())
    assert found == {RESOURCE: Expected(None, any_version=True)}


def test_what_an_earlier_step_left_is_expected_even_over_an_override() -> None:
    """S11."""
    item = step(expects="ent_2", observed_version="5")
    for decision in ({}, {"override": frozenset({"ent_1"})}):
        found = expected_versions(decided(item, **decision), item, entry(), Left(now={RESOURCE: "7"}))
        assert found == {RESOURCE: Expected("7")}


def test_a_record_that_was_made_again_is_expected_under_its_new_name() -> None:
    """Design: ids that change are mapped for later steps and plans."""
    found = expected_versions(
        decided(step()), step(), entry(), Left(now={"crm://deal/9": "1"}), {RESOURCE: "crm://deal/9"}
    )
    assert found == {"crm://deal/9": Expected("1")}


def test_only_records_that_may_still_change_are_held() -> None:
    """Design, And back."""
    steps = [step("ent_1"), step("ent_2"), step("ent_3")]
    entries = {
        "ent_1": entry("ent_1", resource="a://1"),
        "ent_2": entry("ent_2", resource="a://2", status="reverted"),
        "ent_3": entry("ent_3", resource="a://3"),
    }
    assert resources_of(decided(*steps).plan, entries, frozenset({"ent_3"})) == ["a://1"]


def test_an_observation_that_failed_is_none() -> None:
    """G8."""
    items = [
        {"entry": "ent_1", "resource": "a", "exists": True, "version": "4", "fields": {}},
        {"entry": "ent_1", "resource": "b", "error": "away"},
    ]
    assert observed_of(items) == {("ent_1", "a"): "4"}


def test_single_fields_that_somebody_changed_need_an_override_and_others_do_not() -> None:
    """S3, contract: fields."""
    item = step(conflict=Conflict(fields=[ConflictField(field="stage", was="open", wrote="won", now="lost")]))
    for fields, override, runs in ((["stage"], [], False), (["stage"], ["ent_1"], True), (["owner"], [], True)):
        plan = decided(item, fields={"ent_1": fields}, override=frozenset(override))
        found = verdict(plan, item, entry(), {}, NOW)
        assert isinstance(found, Run) == runs
        assert isinstance(found, Run) or found.outcome == "conflict"
