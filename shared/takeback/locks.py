"""Leases on names, queued for in Redis (J19): who holds one goes first, everybody else waits.

Redis only orders those who wait. What must never happen twice is guarded by PostgreSQL's fence and its unique index
(design.md, Serialization): a Redis that restarted empty, or a lease that ran out, costs a retry there and nothing more.

A lease that is given back may be kept for a moment, for whoever of this process asks next: an agent's next call follows its
last one. Whoever waits for it in another process leaves word, and is let in before this process asks again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

log = structlog.get_logger()

PREFIX: Final = "takeback:lock:"
WANTED: Final = "takeback:wanted:"
"""Where whoever waits for a name leaves word; apart from the names, whatever those are."""
_SOCKET_SECONDS: Final = 2.0
_FIRST_WAIT: Final = 0.002
_LONGEST_WAIT: Final = 0.05
_KEPT_SECONDS: Final = 0.1
"""How long a lease that was given back is kept for the next caller of this process."""
_IN_A_ROW_SECONDS: Final = 0.5
"""How long one lease goes from caller to caller before Redis is asked whether somebody else waits."""
_RELEASE: Final = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end return redis.call('exists', KEYS[2])"
)
_WANTED_MILLISECONDS: Final = 200


class LockUnavailable(Exception):
    """Redis does not answer: nobody can say who is next, so nothing may go on (503, J19)."""


class LockBusy(Exception):
    """The name was held by others for as long as the caller would wait."""


class Lease(NamedTuple):
    """A held name. *since*, in `time.monotonic` seconds, is when Redis was asked for it, maybe by an earlier caller."""

    name: str
    token: str
    seconds: float
    since: float


@dataclass(slots=True)
class _Command:
    """One command of one caller, sent together with whatever else is queued. *reply* is None where nobody waits for it."""

    words: tuple[Any, ...]
    reply: asyncio.Future[Any] | None


class Locks:
    """Leases for one process: its callers queue here, so that the process contends once for each name.

    Commands of many callers travel in one write. Nothing is retried by the client: a retried ``SET NX`` that was won reads
    as lost. Build it in a composition root; `close` gives back what is kept, any other lease ends by `release` or its time.
    """

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,  # one deadline for each batch instead of one for each reply
            socket_connect_timeout=_SOCKET_SECONDS,
            protocol=2,
        )
        self._name = secrets.token_hex(12)
        self._numbers = itertools.count(1)
        self._queue: list[_Command] = []
        self._sending: asyncio.Task[None] | None = None
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._kept: dict[str, tuple[Lease, asyncio.TimerHandle]] = {}
        self._given_back: dict[str, asyncio.Future[Any]] = {}
        self._yielding: set[str] = set()

    async def acquire(self, name: str, *, lease_seconds: float, wait_seconds: float) -> Lease:
        """The lease on *name* for *lease_seconds*; raises `LockBusy` after *wait_seconds*, `LockUnavailable` without Redis.

        Callers of this process get it in the order in which they asked.
        """
        give_up = time.monotonic() + wait_seconds
        await self._turn(name, give_up)
        try:
            kept = self._kept.pop(name, None)
            if kept is not None:
                lease, timer = kept
                timer.cancel()
                # Older than that where this process stood still: it may have run out since.
                fresh = time.monotonic() - lease.since < _IN_A_ROW_SECONDS + _KEPT_SECONDS
                if fresh and lease.seconds == lease_seconds:
                    return lease
                self._give_back(lease)
            return await self._contend(name, lease_seconds, give_up)
        except BaseException:
            self._next(name)
            raise

    def release(self, lease: Lease, *, keep: bool = False) -> None:
        """Lets go of *lease*, if it is still this holder's. Does not wait: whoever asks next is queued behind it.

        *keep* it a moment for the next caller of this process, where nobody else is known to want it.
        """
        if keep and time.monotonic() - lease.since < _IN_A_ROW_SECONDS:
            timer = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._let_go, lease.name)
            self._kept[lease.name] = lease, timer
        else:
            self._give_back(lease)
        self._next(lease.name)

    async def ping(self) -> None:
        """Raises `LockUnavailable` when Redis does not answer (readiness)."""
        await self._ask("PING")

    async def close(self) -> None:
        """Gives back what is kept, sends what is still queued and closes the connection."""
        for name in list(self._kept):
            self._kept[name][1].cancel()
            self._let_go(name)
        if self._sending is not None:
            await self._sending
        await self._redis.aclose()

    def _let_go(self, name: str) -> None:
        lease, _ = self._kept.pop(name)
        self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        name = lease.name
        reply = self._given_back[name] = asyncio.get_running_loop().create_future()
        reply.add_done_callback(lambda _: self._was_given_back(name, reply))
        self._enqueue(_Command(("EVAL", _RELEASE, 2, PREFIX + name, WANTED + name, lease.token), reply))

    def _was_given_back(self, name: str, reply: asyncio.Future[Any]) -> None:
        """Where somebody of another process waits for *name*, whoever asks here next lets it look first."""
        if self._given_back.get(name) is reply:
            del self._given_back[name]
        if reply.exception() is None and reply.result():
            self._yielding.add(name)
            asyncio.get_running_loop().call_later(_LONGEST_WAIT, self._yielding.discard, name)

    async def _turn(self, name: str, give_up: float) -> None:
        """Waits until nobody of this process is before us."""
        queue = self._waiting.get(name)
        if queue is None:
            self._waiting[name] = deque()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + max(0.0, give_up - time.monotonic())):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._next(name)  # it became ours in the same moment
            elif turn in queue:  # else it was passed over already
                queue.remove(turn)
            if isinstance(error, TimeoutError):
                raise LockBusy(f"{name} was held by others all the while") from error
            raise

    def _next(self, name: str) -> None:
        queue = self._waiting[name]
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[name]

    async def _contend(self, name: str, lease_seconds: float, give_up: float) -> Lease:
        token = f"{self._name}-{next(self._numbers)}"
        key = PREFIX + name
        milliseconds = max(1, int((lease_seconds + _KEPT_SECONDS + _IN_A_ROW_SECONDS) * 1000))
        pause = _FIRST_WAIT
        if name in self._given_back:
            await asyncio.wait([self._given_back[name]])
        if name in self._yielding:
            await asyncio.sleep(_LONGEST_WAIT)
        while True:
            asked = time.monotonic()
            try:
                won = await self._ask("SET", key, token, "NX", "PX", milliseconds)
            except BaseException:
                # It may have been won all the same: give it back rather than let it run out.
                self._give_back(Lease(name, token, lease_seconds, asked))
                raise
            if won:
                if pause > _FIRST_WAIT:
                    self._enqueue(_Command(("DEL", WANTED + name), None))
                return Lease(name, token, lease_seconds, asked)
            if time.monotonic() + pause > give_up:
                raise LockBusy(f"{name} was held by others all the while")
            self._enqueue(_Command(("SET", WANTED + name, token, "PX", _WANTED_MILLISECONDS), None))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  a pause, no secret
            pause = min(pause * 1.5, _LONGEST_WAIT)

    async def _ask(self, *words: Any) -> Any:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._enqueue(_Command(words, reply))
        return await reply

    def _enqueue(self, command: _Command) -> None:
        self._queue.append(command)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send_all(), name="locks")

    async def _send_all(self) -> None:
        while self._queue:
            batch, self._queue = self._queue, []
            try:
                replies = await self._send(batch)
            except Exception as error:  # a lost connection takes many shapes, and whoever waits here must hear of each
                why = str(error) or f"no reply within {_SOCKET_SECONDS:g} s"
                log.warning("Redis does not answer", error=why, commands=len(batch))
                replies = [LockUnavailable(f"Redis does not answer: {why}")] * len(batch)
            for command, reply in zip(batch, replies, strict=True):
                if command.reply is None or command.reply.done():
                    continue
                if isinstance(reply, LockUnavailable):
                    command.reply.set_exception(reply)
                elif isinstance(reply, Exception):
                    command.reply.set_exception(LockUnavailable(f"Redis refused: {reply}"))
                else:
                    command.reply.set_result(reply)

    async def _send(self, batch: list[_Command]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in batch:
            pipeline.execute_command(*command.words)
        async with asyncio.timeout(_SOCKET_SECONDS):
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies
