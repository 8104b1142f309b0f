"""A failpoint is armed by a test only."""

from __future__ import annotations

import pytest

from recorder.failpoints import armed_in


def test_nothing_is_armed_outside_a_test() -> None:
    assert armed_in({"TAKEBACK_FAILPOINT": "after-intent"}) is None
    assert armed_in({"TAKEBACK_TEST": "1"}) is None


def test_a_test_arms_a_place_and_a_time() -> None:
    assert armed_in({"TAKEBACK_TEST": "1", "TAKEBACK_FAILPOINT": "at-claim"}) == ("at-claim", 1)
    assert armed_in({"TAKEBACK_TEST": "1", "TAKEBACK_FAILPOINT": "at-claim:3"}) == ("at-claim", 3)
    with pytest.raises(ValueError, match="names 'nowhere'"):
        armed_in({"TAKEBACK_TEST": "1", "TAKEBACK_FAILPOINT": "nowhere"})
