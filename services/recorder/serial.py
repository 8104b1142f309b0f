"""Serialization of writes: a turn on the serial key, its fence, and what stands in the way of a write right now (J19, J7)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from takeback.errors import Problem, unavailable
from takeback.locks import Lease, LockBusy, Locks, LockUnavailable

_REMEMBERED_KEYS: Final = 10_000

STANDING: Final = """
select q.n, s.status as run_status, c.seq as campaign_version, m.role,
       exists (select from approvals a where a.run = q.run and a.fetched_at is null) as unfetched,
       (select value from fences where serial_key = q.key) as fence,
       (select e.id from entries e
        where e.campaign = q.campaign and e.status = 'in_doubt' and e.write and e.id <> q.itself
          and ((e.server = q.server and e.operation = q.operation
                and (e.arguments_hash = q.arguments_hash
                     or not exists (select from entry_resources r where r.entry = e.id and r.role = 'changes')))
               or exists (select from entry_resources r
                          where r.entry = e.id and r.role = 'changes' and r.resource = q.resource))
        order by e.created_at limit 1) as doubt
from unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[])
     as q (n, key, campaign, server, operation, arguments_hash, resource, itself, run, sub)
join streams s on s.stream = q.run
join streams c on c.stream = q.campaign
left join members m on m.campaign = q.campaign and m.sub = q.sub
"""
"""The fence and the doubt in one statement: while the fence stays, so does the answer, under that key.

Beside them how the run and the caller stand, which a call may have remembered from an earlier one.
"""


BESIDE: Final = """
select q.n,
       (select e.id from entries e
        where e.campaign = q.campaign and e.status = 'in_doubt' and e.write and e.id <> q.itself
          and exists (select from entry_resources r
                      where r.entry = e.id and r.role = 'changes'
                        and r.resource in (select jsonb_array_elements_text(q.resources::jsonb)))
        order by e.created_at limit 1) as doubt
from unnest($1::integer[], $2::text[], $3::text[], $4::text[]) as q (n, campaign, itself, resources)
"""
"""The doubt over the other records of a call that changes several: which they are is known once they were read."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The serial key's fence, and the entry in doubt that the call would touch or repeat, as of one moment."""

    fence: int
    doubt: str | None


class Serial:
    """Turns on serial keys. Redis says whose turn it is; the fence in PostgreSQL says whether that was true."""

    def __init__(self, locks: Locks, *, lease_seconds: float, wait_seconds: float) -> None:
        self._locks = locks
        self._left: dict[str, int] = {}
        self._alone: set[str] = set()
        self._lease_seconds = lease_seconds
        self.wait_seconds = wait_seconds

    def left(self, key: str | None, fence: int | None) -> None:
        """A turn of ours ended with the key's *fence* at this; None where that is not known."""
        if key is None:
            return
        before = self._left.pop(key, None)
        self._alone.discard(key)
        if fence is None:
            return
        if len(self._left) >= _REMEMBERED_KEYS:
            self._left.clear()
            self._alone.clear()
        self._left[key] = fence
        if before is not None and fence == before + 2:  # an intent and a conclusion, both of ours
            self._alone.add(key)

    def remembered(self, key: str | None) -> int | None:
        """The key's fence as our last turn left it. Whoever moved it since is found out by the intent that names it."""
        return 0 if key is None else self._left.get(key)

    def turn(self, key: str | None) -> AbstractAsyncContextManager[Any]:
        """Waits for the key's turn and holds it for the block; without a key nothing is ordered and there is no fence.

        Raises `Problem` 503 `campaign-busy`: nothing was forwarded.
        """
        return nullcontext() if key is None else _Turn(self, key)

    async def wait_for(self, key: str) -> Lease:
        """The lease on the key's turn, to be given to `end`; see `turn`."""
        try:
            return await self._locks.acquire(key, lease_seconds=self._lease_seconds, wait_seconds=self.wait_seconds)
        except LockBusy as error:
            raise busy() from error
        except LockUnavailable as error:
            raise unavailable(
                "campaign-busy", "The queue of this campaign's calls is away. Nothing was forwarded; try again."
            ) from error

    def end(self, key: str, lease: Lease) -> None:
        """Ends a turn. Where nobody came between our last two, our next caller need not ask Redis again."""
        self._locks.release(lease, keep=key in self._alone)


class _Turn:
    """One turn. (A class: a generator would cost each call as much as its policy.)"""

    __slots__ = ("_key", "_lease", "_serial")

    def __init__(self, serial: Serial, key: str) -> None:
        self._serial = serial
        self._key = key

    async def __aenter__(self) -> None:
        self._lease = await self._serial.wait_for(self._key)

    async def __aexit__(self, *_: object) -> None:
        self._serial.end(self._key, self._lease)


def busy() -> Problem:
    """The refusal of a call that did not get its turn in time."""
    return unavailable(
        "campaign-busy", "Other calls of this campaign took all the time there was. Nothing was forwarded; try again."
    )
