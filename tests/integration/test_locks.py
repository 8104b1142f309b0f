"""Leases in Redis: one holder at a time, in turn, given back by its holder only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from takeback.locks import PREFIX, WANTED, LockBusy, Locks, LockUnavailable
from tests.servers import Server
from tests.waiting import eventually


@pytest.fixture
async def locks(redis_url: str) -> AsyncIterator[Locks]:
    locks = Locks(redis_url)
    yield locks
    await locks.close()


async def test_callers_of_two_processes_hold_a_name_one_at_a_time(locks: Locks, redis_url: str) -> None:
    """J19."""
    other = Locks(redis_url)
    holders = most = turns = 0

    async def work(mine: Locks) -> None:
        nonlocal holders, most, turns
        for _ in range(5):
            lease = await mine.acquire("name", lease_seconds=5, wait_seconds=10)
            holders += 1
            most = max(most, holders)
            turns += 1
            await asyncio.sleep(0)
            holders -= 1
            mine.release(lease)

    await asyncio.gather(*(work(mine) for mine in (locks, other) for _ in range(10)))
    await other.close()
    assert (most, turns) == (1, 100)


async def test_callers_of_one_process_get_it_in_the_order_in_which_they_asked(locks: Locks) -> None:
    order: list[int] = []

    async def work(number: int) -> None:
        lease = await locks.acquire("name", lease_seconds=5, wait_seconds=10)
        order.append(number)
        locks.release(lease)

    await asyncio.gather(*(work(number) for number in range(20)))
    assert order == list(range(20))


async def test_a_name_that_stays_held_is_told_as_busy_and_the_next_one_is_not_hindered(locks: Locks) -> None:
    lease = await locks.acquire("name", lease_seconds=5, wait_seconds=1)
    with pytest.raises(LockBusy):
        await locks.acquire("name", lease_seconds=5, wait_seconds=0.05)
    waiting = asyncio.ensure_future(locks.acquire("name", lease_seconds=5, wait_seconds=5))
    await asyncio.sleep(0)
    locks.release(lease)
    assert (await waiting).name == "name"


async def test_a_caller_that_gives_up_leaves_the_queue(locks: Locks) -> None:
    lease = await locks.acquire("name", lease_seconds=5, wait_seconds=1)
    gone = asyncio.ensure_future(locks.acquire("name", lease_seconds=5, wait_seconds=5))
    behind = asyncio.ensure_future(locks.acquire("name", lease_seconds=5, wait_seconds=5))
    await asyncio.sleep(0)
    gone.cancel()
    locks.release(lease)
    locks.release(await behind)
    assert gone.cancelled() or (await asyncio.wait([gone]))


async def test_a_caller_that_is_cancelled_while_its_turn_passes_it_by_is_cancelled_and_nothing_else(
    locks: Locks,
) -> None:
    lease = await locks.acquire("name", lease_seconds=5, wait_seconds=1)
    gone = asyncio.ensure_future(locks.acquire("name", lease_seconds=5, wait_seconds=5))
    await asyncio.sleep(0)
    gone.cancel()
    locks.release(lease)
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_whatever_keeps_commands_from_redis_nobody_who_sent_one_waits_for_ever(locks: Locks) -> None:
    """J19: half a surrogate pair cannot be sent; those who share its write hear of that as of a lost connection."""
    async with asyncio.timeout(30):
        heard = await asyncio.gather(
            *(locks.acquire(name, lease_seconds=5, wait_seconds=1) for name in ("name", "half \ud800")),
            return_exceptions=True,
        )
    assert [type(one) for one in heard] == [LockUnavailable, LockUnavailable]


async def test_a_process_that_stood_still_does_not_hand_on_a_lease_that_ran_out(locks: Locks) -> None:
    """J19: the timer that lets go of what is kept is as late as everything else then."""
    first = await locks.acquire("name", lease_seconds=0.2, wait_seconds=1)
    locks.release(first, keep=True)
    while time.monotonic() - first.since < 0.9:  # Redis has let go of it by then
        pass
    second = await locks.acquire("name", lease_seconds=0.2, wait_seconds=1)
    assert await locks._ask("GET", PREFIX + "name") == second.token.encode()


async def test_the_word_of_whoever_waits_is_no_name_that_anybody_could_hold(locks: Locks, redis_url: str) -> None:
    """J19."""
    other = Locks(redis_url)
    held = await other.acquire("name", lease_seconds=20, wait_seconds=1)
    waiting = asyncio.ensure_future(locks.acquire("name", lease_seconds=5, wait_seconds=20))
    await eventually(lambda: other._ask("EXISTS", WANTED + "name"))
    assert await other._ask("KEYS", PREFIX + "*") == [(PREFIX + "name").encode()]
    other.release(held)
    assert (await waiting).name == "name"
    await other.close()


async def test_nobody_gives_back_what_is_somebody_elses(locks: Locks, redis_url: str) -> None:
    """J19: a lease that ran out belongs to whoever took it next."""
    late = await locks.acquire("name", lease_seconds=0.02, wait_seconds=1)
    other = Locks(redis_url)
    now = await other.acquire("name", lease_seconds=5, wait_seconds=2)
    locks.release(late)
    await locks.ping()
    assert await locks._ask("GET", PREFIX + "name") == now.token.encode()
    await other.close()


async def test_without_redis_nobody_holds_anything_and_with_it_back_the_next_one_does(
    start_valkey: Callable[[], Awaitable[Server]],
) -> None:
    """J19."""
    valkey = await start_valkey()
    locks = Locks(valkey.url)
    locks.release(await locks.acquire("name", lease_seconds=5, wait_seconds=1))
    await valkey.stop()
    with pytest.raises(LockUnavailable):
        await locks.acquire("name", lease_seconds=5, wait_seconds=1)
    await valkey.start()
    locks.release(await locks.acquire("name", lease_seconds=5, wait_seconds=1))
    await locks.close()


async def test_a_lease_kept_for_the_next_caller_is_that_callers_and_is_given_back_when_nobody_asks(
    locks: Locks, redis_url: str
) -> None:
    """J19: kept, it is still held; nobody else has it meanwhile."""
    first = await locks.acquire("name", lease_seconds=5, wait_seconds=1)
    locks.release(first, keep=True)
    second = await locks.acquire("name", lease_seconds=5, wait_seconds=1)
    assert second == first
    assert await locks._ask("GET", PREFIX + "name") == first.token.encode()
    locks.release(second, keep=True)
    other = Locks(redis_url)
    third = await other.acquire("name", lease_seconds=5, wait_seconds=5)
    assert await locks._ask("GET", PREFIX + "name") == third.token.encode()
    await other.close()


async def test_whoever_waits_elsewhere_is_let_in_between_callers_that_follow_each_other_closely(
    locks: Locks, redis_url: str
) -> None:
    """J19: a busy process does not keep a campaign to itself."""
    other = Locks(redis_url)

    async def one_turn() -> None:
        other.release(await other.acquire("name", lease_seconds=60, wait_seconds=5))

    let_in = asyncio.ensure_future(one_turn())
    while not let_in.done():
        lease = await locks.acquire("name", lease_seconds=60, wait_seconds=10)
        await locks.ping()  # a turn's work
        locks.release(lease, keep=True)
    await let_in
    await other.close()


async def test_what_is_kept_is_given_back_at_the_end(redis_url: str) -> None:
    """J19."""
    ending, staying = Locks(redis_url), Locks(redis_url)
    ending.release(await ending.acquire("name", lease_seconds=60, wait_seconds=1), keep=True)
    await ending.close()
    assert await staying._ask("EXISTS", PREFIX + "name") == 0
    await staying.close()
