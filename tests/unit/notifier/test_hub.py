"""A listener never makes others wait, and hears each event once (N6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.feed import Cursor, Fed
from notifier.hub import Ended, Listener, closing, removed, seen_by
from takeback.auth import Caller

PERSON = Caller("ann", "human")


def fed(seq: int) -> Fed:
    return Fed(seq, "entry.committed", b"{}")


@given(st.lists(st.integers(1, 20)), st.integers(0, 10))
async def test_a_listener_takes_each_number_once_and_in_order(offered: list[int], after: int) -> None:
    listener = Listener(PERSON, after, limit=100)
    for seq in offered:
        listener.offer(fed(seq))
    listener.offer(fed(1000))
    taken = [(await listener.take()).seq]
    while taken[-1] != 1000:
        taken.append((await listener.take()).seq)
    assert taken == sorted(set(taken))
    assert all(seq > after for seq in taken)


async def test_a_full_queue_ends_its_listener_and_keeps_nothing() -> None:
    listener = Listener(PERSON, 0, limit=3)
    for seq in range(1, 5):
        listener.offer(fed(seq))
    with pytest.raises(Ended, match="resume after your last id") as ended:
        await listener.take()
    assert ended.value.code == 1013


async def test_the_first_reason_to_end_is_the_one_that_is_told() -> None:
    listener = Listener(PERSON, 0, limit=3)
    listener.end(removed())
    listener.end(closing())
    with pytest.raises(Ended) as ended:
        await listener.take()
    assert ended.value.code == 1008


@given(st.text(), st.integers(0, 10**17))
def test_a_cursor_reads_back_as_it_was_written(epoch: str, seq: int) -> None:
    cursor = Cursor(epoch, seq)
    assert Cursor.of(str(cursor)) == (cursor if epoch else None)


@given(st.text())
def test_any_text_is_a_cursor_or_none(text: str) -> None:
    cursor = Cursor.of(text)
    assert cursor is None or cursor.seq >= 0


def test_a_person_sees_the_policy_and_an_agent_does_not() -> None:
    """P10."""
    policy = Fed(1, "policy.changed", b"{}")
    assert seen_by(policy, PERSON) is policy
    assert seen_by(policy, Caller("bot", "agent")) is None
