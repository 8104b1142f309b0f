"""What an undo's answer and the records after it prove."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.reversing.outcome import Evidence, Part, judge
from takeback.extension import CallOutcome, UndoOutcome

ANSWERS = [*get_args(UndoOutcome), "none", "not_sent", "refused"]
CALLS = [None, *get_args(CallOutcome)]


def part(wrong: list[str] | None, *, untouched: bool = False, unobservable: bool = False) -> Part:
    return Part("a://1", "2", None, None, wrong, untouched, unobservable)


BACK, NOT_BACK, UNSEEN = part([]), part(["stage is won, it was open"]), part(None)
parts = st.lists(
    st.builds(
        part,
        st.none() | st.just([]) | st.just(["wrong"]),
        untouched=st.booleans(),
        unobservable=st.booleans(),
    ),
    max_size=3,
)


@given(st.sampled_from(ANSWERS), parts, st.booleans(), st.sampled_from(CALLS))
def test_nothing_is_reverted_without_every_record_seen_as_before(
    answer: str, found: list[Part], resumed: bool, call: CallOutcome | None
) -> None:
    """S5: reverted means verified, whatever anybody says."""
    judged = judge(Evidence(answer, found, resumed, call))  # type: ignore[arg-type]
    if judged.outcome in ("reverted", "already_reverted"):
        assert found
        assert all(one.verified for one in found)
    assert judged.outcome in ("reverted", "already_reverted") or judged.detail


@given(st.sampled_from(ANSWERS), parts, st.booleans(), st.sampled_from(CALLS))
def test_nothing_is_let_go_of_without_proof_that_nothing_happened(
    answer: str, found: list[Part], resumed: bool, call: CallOutcome | None
) -> None:
    """Design: reverting → committed only on proof; unknown is a state."""
    judged = judge(Evidence(answer, found, resumed, call))  # type: ignore[arg-type]
    if judged.outcome in ("conflict", "failed"):
        assert call in ("never", "failed") or (not resumed and answer in ("conflict", "failed", "refused", "not_sent"))


@pytest.mark.parametrize(
    ("evidence", "outcome"),
    [
        (Evidence("reverted", [BACK]), "reverted"),
        (Evidence("reverted", [NOT_BACK]), "unverified"),
        (Evidence("reverted", [BACK, NOT_BACK]), "unverified"),
        (Evidence("reverted", [UNSEEN]), "in_doubt"),
        (Evidence("reverted", []), "unverified"),
        (Evidence("reverted", [part(None, unobservable=True)]), "unverified"),
        (Evidence("already_reverted", [BACK]), "already_reverted"),
        (Evidence("already_reverted", [BACK], resumed=True), "reverted"),
        (Evidence("already_reverted", [NOT_BACK]), "unverified"),
        (Evidence("unknown", [NOT_BACK]), "unverified"),
        (Evidence("conflict", [NOT_BACK]), "conflict"),
        (Evidence("failed", [part(["x"], untouched=True)]), "failed"),
        (Evidence("failed", [part(["x"], untouched=False)]), "unverified"),
        (Evidence("refused", [NOT_BACK]), "failed"),
        (Evidence("not_sent", [NOT_BACK]), "failed"),
        (Evidence("none", [NOT_BACK]), "in_doubt"),
        (Evidence("none", [BACK]), "reverted"),
        (Evidence("none", [part([], untouched=True)]), "in_doubt"),
        (Evidence("none", [NOT_BACK], resumed=True, call="never"), "failed"),
        (Evidence("conflict", [NOT_BACK], resumed=True), "in_doubt"),
        (Evidence("conflict", [NOT_BACK], resumed=True, call="failed"), "conflict"),
        (Evidence("conflict", [BACK], resumed=True), "reverted"),
        (Evidence("not_sent", [NOT_BACK], resumed=True), "in_doubt"),
    ],
)
def test_each_answer_is_worth_what_it_proves(evidence: Evidence, outcome: str) -> None:
    """G8, G9, S8."""
    assert judge(evidence).outcome == outcome


def test_every_answer_under_every_circumstance_has_an_outcome() -> None:
    """Design: unknown is a state."""
    for answer, found, resumed, call in itertools.product(
        ANSWERS, ([], [BACK], [NOT_BACK], [UNSEEN]), (True, False), CALLS
    ):
        assert judge(Evidence(answer, found, resumed, call)).outcome  # type: ignore[arg-type]
