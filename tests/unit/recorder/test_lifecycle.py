"""The life of an entry: no step leads out of where it may not, and every end is one."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.journal.reading import UNSETTLED
from recorder.lifecycle import IllegalStep, Step, after, before, told
from takeback.messages.entry import EntryStatus

STEPS: tuple[Step, ...] = get_args(Step)
STATUSES: tuple[EntryStatus, ...] = get_args(EntryStatus)


@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_an_entry_never_runs_twice_and_never_leaves_an_end_but_by_being_taken_back(steps: list[Step]) -> None:
    """J2, J7, G9."""
    status: EntryStatus | None = None
    intents = 0
    for step in steps:
        try:
            new = after(status, step)
        except IllegalStep:
            continue
        intents += step == "intend"
        if status in ("failed", "denied", "expired"):
            pytest.fail(f"{status} is an end, and {step} left it")
        if status == "reverted":
            assert new == "committed"
        status = new
    assert intents <= 1


@given(st.sampled_from(STEPS))
def test_what_an_append_expects_is_what_the_step_may_follow(step: Step) -> None:
    for status in STATUSES:
        if status in before(step):
            assert after(status, step) in STATUSES
        else:
            with pytest.raises(IllegalStep):
                after(status, step)


def test_every_status_can_be_reached_and_every_waiting_one_can_be_left() -> None:
    reached = {after(status, step) for step in STEPS for status in [None, *STATUSES] if _may(status, step)}
    assert reached == set(STATUSES)
    assert all(any(_may(status, step) for step in STEPS) for status in UNSETTLED)


def test_each_step_is_told_by_a_record_of_its_kind() -> None:
    assert told("commit") == ("entry.committed", True)
    assert told("intend") == ("entry.intended", False)
    assert told("ask") == ("approval.requested", True)


def _may(status: EntryStatus | None, step: Step) -> bool:
    try:
        after(status, step)
    except IllegalStep:
        return False
    return True
