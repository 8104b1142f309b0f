"""What settles a doubt, and what does not."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.intake import Snapshot
from recorder.settling import proof_in
from takeback.extension import EXTENSION, CallAnswer, Observation
from takeback.messages.entry import Effect, FieldChange

DEAL = "crm://lab/deal/d1"
fields = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3)
versions = st.sampled_from(["v1", "v2"])


def observed(found: dict[str, Any] | None, version: str | None, outcome: Any = None) -> Observation:
    call = None if outcome is None else CallAnswer(outcome=outcome, meta={"undo": {}})
    return Observation(exists=found is not None, version=version, fields=found, call=call)


def test_the_servers_word_on_the_key_settles_it() -> None:
    """J7."""
    seen = observed(None, None, "committed")
    assert proof_in(seen, None, []).step == "commit"  # type: ignore[union-attr]
    assert proof_in(observed(None, None, "failed"), None, []).step == "fail"  # type: ignore[union-attr]
    assert proof_in(observed(None, None, "never"), None, []).step == "fail"  # type: ignore[union-attr]
    assert proof_in(observed(None, None, "unknown"), None, []) is None


def test_the_meta_is_found_alone_or_inside_the_whole() -> None:
    for meta in ({"undo": 1}, {EXTENSION: {"undo": 1}}):
        seen = Observation(call=CallAnswer(outcome="committed", meta=meta))
        assert proof_in(seen, None, []).meta == {"undo": 1}  # type: ignore[union-attr]


@given(fields, fields, versions, versions)
def test_without_a_forecast_no_state_of_the_record_proves_anything(
    old: dict[str, Any], new: dict[str, Any], was: str, version: str
) -> None:
    """J7: a version alone settles nothing."""
    assert proof_in(observed(new, version), Snapshot(DEAL, observed(old, was)), []) is None


@given(fields, fields, fields, versions)
def test_only_exactly_what_was_foretold_proves_that_it_happened(
    old: dict[str, Any], change: dict[str, Any], now: dict[str, Any], version: str
) -> None:
    """J7."""
    snapshot = Snapshot(DEAL, observed(old, "v1"))
    effect = Effect(resource=DEAL, changes=[FieldChange(field=name, new=value) for name, value in change.items()])
    proof = proof_in(observed(now, version), snapshot, [effect])
    if proof is not None:
        assert now == {**old, **change} != old
        assert version != "v1"
        assert (proof.step, proof.by) == ("commit", "record")


@given(fields.filter(bool))
def test_a_delete_is_proved_by_the_record_being_gone(old: dict[str, Any]) -> None:
    effect = Effect(
        resource=DEAL, changes=[FieldChange(field=name, old=value, new=None) for name, value in old.items()]
    )
    snapshot = Snapshot(DEAL, observed(old, "v1"))
    assert proof_in(observed(None, None), snapshot, [effect]) is not None
    assert proof_in(observed(old, "v1"), snapshot, [effect]) is None
