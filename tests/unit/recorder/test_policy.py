"""Policy is a function of values: what it decides for whichever call and policy."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.policy import ALLOWED, Question, decide, on_snapshot_failure
from takeback.messages.campaign import Policy

OPERATION = "crm/set_stage"

questions = st.builds(
    Question,
    operation=st.just(OPERATION),
    read=st.booleans(),
    undo=st.sampled_from(["none", "compensate", "unknown"]),
    via=st.sampled_from(["api", "ui"]),
    window_seconds=st.none() | st.floats(0, 1e7),
    versioned=st.booleans(),
    exercised=st.booleans(),
    pin_changed=st.booleans(),
    repairs=st.booleans(),
    doubt=st.none() | st.just("ent_before"),
    attended_in=st.none() | st.floats(0, 1e7) | st.just(inf),
)
rules = st.none() | st.sampled_from(["allow", "ask", "deny"])
policies = st.builds(
    lambda rule, exercised, window: Policy(
        operations={OPERATION: rule} if rule else {}, require_exercised=exercised, min_window_seconds=window
    ),
    rules,
    st.booleans(),
    st.none() | st.integers(0, 10**7),
)

REVERSIBLE = Question(OPERATION, undo="compensate", versioned=True, window_seconds=86400)


def with_(**changed: Any) -> Question:
    return REVERSIBLE._replace(**changed)


def test_what_can_surely_be_taken_back_is_not_asked() -> None:
    """P9."""
    assert decide(Policy(), REVERSIBLE) == ALLOWED


def test_each_lack_of_reversibility_asks() -> None:
    """P1, P2, P3, P4, J10."""
    strict = Policy(require_exercised=True, min_window_seconds=90_000)
    assert decide(Policy(), with_(undo="none")).verdict == "ask"
    assert decide(Policy(), with_(undo="unknown")).verdict == "ask"
    assert decide(Policy(), with_(via="ui")).verdict == "ask"
    assert decide(Policy(), with_(versioned=False)).verdict == "ask"
    assert decide(Policy(min_window_seconds=90_000), REVERSIBLE).verdict == "ask"
    assert decide(Policy(min_window_seconds=90_000), with_(window_seconds=None)).verdict == "allow"
    assert decide(strict, with_(window_seconds=None)).verdict == "ask"
    assert decide(strict, with_(window_seconds=None, exercised=True)).verdict == "allow"


def test_a_window_that_closes_before_anybody_is_on_duty_asks() -> None:
    """P3: nobody's calendar says nothing, and a window without an end waits for everybody."""
    assert decide(Policy(), with_(attended_in=86399.0)).verdict == "allow"
    for away in (86400.0, inf):
        assert decide(Policy(), with_(attended_in=away)).verdict == "ask"
        assert decide(Policy(), with_(attended_in=away, window_seconds=None)) == ALLOWED
        assert decide(Policy(operations={OPERATION: "allow"}), with_(attended_in=away)) == ALLOWED


@given(policies, questions)
def test_denied_is_denied_and_nothing_else_is(policy: Policy, question: Question) -> None:
    assert (decide(policy, question).verdict == "deny") == (policy.operations.get(OPERATION) == "deny")


@given(policies, questions)
def test_no_rule_lets_a_doubt_a_changed_definition_or_a_repair_pass_unasked(policy: Policy, question: Question) -> None:
    """J7, J14, J15."""
    if question.pin_changed or question.repairs or (question.doubt and not question.read):
        assert decide(policy, question).verdict != "allow"


@given(policies, questions)
def test_more_reversibility_is_never_asked_more(policy: Policy, question: Question) -> None:
    """P1."""
    better = question._replace(undo="compensate", via="api", versioned=True, exercised=True, window_seconds=None)
    order = {"allow": 0, "ask": 1, "deny": 2}
    assert order[decide(policy, better).verdict] <= order[decide(policy, question).verdict]


@given(policies, questions)
def test_what_the_agent_is_told_names_no_rule(policy: Policy, question: Question) -> None:
    """P10: one sentence for every reason, and a doubt is the only thing that is named."""
    decision = decide(policy, question)
    for word in ("policy", "window", "exercised", "pin", "version", "irreversible"):
        assert word not in decision.why
    assert ("ent_before" in decision.why) == (
        question.doubt is not None and not question.read and decision.verdict == "ask"
    )
    assert bool(decision.because) == (decision.verdict != "allow")


def test_a_snapshot_that_failed_is_asked_by_default() -> None:
    """J4."""
    assert on_snapshot_failure(Policy(), "gone").verdict == "ask"
    assert on_snapshot_failure(Policy(on_snapshot_failure="proceed"), "gone").verdict == "allow"
    assert on_snapshot_failure(Policy(on_snapshot_failure="deny"), "gone").verdict == "deny"
