"""The group writer: one connection drains a queue of units into append_v1 and answers each after the commit (J2, J3).

What it promises: an answer is durable; a refusal or `JournalUnavailable` with ``written=False`` wrote nothing; every caller is
answered; a unit that the database cannot take fails alone. A connection lost on the way proves nothing, so the writer first
makes sure that the old session is gone, then rereads by record id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import asyncpg
import structlog

from recorder.journal.appending import call_append, written_before
from recorder.journal.encoding import Encoded, encode
from recorder.journal.session import Session, connect_session, end_session
from recorder.journal.unavailable import JournalUnavailable
from recorder.journal.unit import Appended, Unit

MAX_UNITS = 32
"""More in one commit, and the database and this process would take turns instead of working at the same time."""
MAX_BYTES = 8 * 1024 * 1024
REREAD_SECONDS = 5.0
"""How long callers wait for proof after a lost connection before they hear that the outcome is unknown."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Waiting:
    unit: Unit
    encoded: Encoded
    size: int
    answer: asyncio.Future[Appended]


@dataclass(slots=True)
class GroupWriter:
    """Owns one connection to *url*. *committed* is told of each group's units and answers, after the commit."""

    url: str
    committed: Callable[[Sequence[tuple[Unit, Appended]]], None]
    deadline: float = 10.0
    _queue: deque[_Waiting] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _session: Session | None = None
    _stopping: bool = False

    async def start(self) -> None:
        """Connect and begin to drain; raises `JournalUnavailable` when the database cannot be reached."""
        self._session = await connect_session(self.url)
        self._task = asyncio.create_task(self._run(), name="journal writer")

    async def stop(self) -> None:
        """Write what is queued, then close. Whoever comes later hears `JournalUnavailable`."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])  # one that died is told by readiness, and keeps nothing from ending
        if self._session is not None:
            await self._session.close()

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """What goes on from `start` to `stop`."""
        return [] if self._task is None else [self._task]

    async def append(self, unit: Unit) -> Appended:
        """Append *unit*; see `Journal.append`. A caller that is cancelled leaves its unit's outcome to whoever rereads it."""
        encoded = encode(unit)
        if self._stopping or self._task is None:
            raise JournalUnavailable("The journal is shutting down. Nothing was written.", written=False)
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        size = len(encoded.json) + sum(len(record.body) for record in unit.records)
        self._queue.append(_Waiting(unit, encoded, size, answer))
        self._wake.set()
        return await answer

    async def _run(self) -> None:
        while True:
            if not self._queue:
                if self._stopping:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            group = self._take()
            try:
                await self._write(group)
            except Exception as error:
                _log.exception("a group of the journal failed in a way that nobody foresaw", units=len(group))
                _fail(
                    group,
                    JournalUnavailable(f"The journal failed: {error}. It is unknown what was written.", written=None),
                )

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._queue and len(group) < MAX_UNITS and (not group or size + self._queue[0].size <= MAX_BYTES):
            waiting = self._queue.popleft()
            if waiting.answer.cancelled():  # its caller left before anything was sent
                continue
            group.append(waiting)
            size += waiting.size
        return group

    async def _write(self, group: list[_Waiting]) -> None:
        if not group:
            return
        session = await self._connected(group)
        if session is None:
            return
        try:
            answers = await call_append(
                session.connection, [(item.unit, item.encoded) for item in group], self.deadline
            )
        except asyncpg.PostgresError as error:
            if session_ended(error) or session.connection.is_closed():
                await self._prove(group, session, error)
            else:
                await self._each_alone(group, error)
        except Exception as error:  # asyncpg's own view of a lost connection takes many shapes
            await self._prove(group, session, error)
        else:
            self._answer(group, answers)

    async def _connected(self, group: list[_Waiting]) -> Session | None:
        if self._session is not None and not self._session.connection.is_closed():
            return self._session
        try:
            self._session = await connect_session(self.url)
        except JournalUnavailable as error:
            _fail(group, error)
            return None
        return self._session

    async def _each_alone(self, group: list[_Waiting], error: asyncpg.PostgresError) -> None:
        """The database took nothing of the group: whom it refuses alone is told so, the others are written."""
        if len(group) == 1 or unavailable(error):
            _fail(
                group,
                JournalUnavailable(f"The journal could not be written: {error}. Nothing was written.", written=False),
            )
            return
        _log.warning("a unit spoiled its group; each is written alone", units=len(group), error=str(error))
        for item in group:
            await self._write([item])

    async def _prove(self, group: list[_Waiting], lost: Session, error: BaseException) -> None:
        """After a lost connection: what is in the journal was written, what is not there never will be."""
        _log.warning("the journal's connection was lost; rereading", units=len(group), error=str(error))
        self._session = None
        lost.connection.terminate()
        try:
            async with asyncio.timeout(REREAD_SECONDS):
                self._session = await end_session(self.url, lost)
                found = await written_before(self._session.connection, [item.unit for item in group])
        except (TimeoutError, JournalUnavailable, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as again:
            _log.warning("what the journal holds could not be reread", units=len(group), error=str(again))
            _fail(
                group,
                JournalUnavailable(
                    "The connection to the journal was lost and could not be made again: it is unknown whether this was "
                    "written. Read it again by its id before doing anything that depends on it.",
                    written=None,
                ),
            )
            return
        self._answer(
            group,
            [
                answer
                or JournalUnavailable(
                    "The connection to the journal was lost. Nothing was written; try again.", written=False
                )
                for answer in found
            ],
        )

    def _answer(self, group: list[_Waiting], answers: Sequence[Appended | Exception]) -> None:
        written: list[tuple[Unit, Appended]] = []
        for item, answer in zip(group, answers, strict=True):
            if isinstance(answer, Appended):
                written.append((item.unit, answer))
            if item.answer.done():
                continue
            if isinstance(answer, Appended):
                item.answer.set_result(answer)
            else:
                item.answer.set_exception(answer)
        if written:
            self.committed(written)


def session_ended(error: asyncpg.PostgresError) -> bool:
    """Whether *error* ended the session: then even a commit may lie before it."""
    return isinstance(error, asyncpg.PostgresConnectionError | asyncpg.OperatorInterventionError) or getattr(
        error, "severity", "ERROR"
    ) in {"FATAL", "PANIC"}


def unavailable(error: asyncpg.PostgresError) -> bool:
    """Whether *error* says that the database as a whole cannot be written now, rather than that it refuses one unit."""
    return isinstance(
        error,
        asyncpg.InsufficientResourcesError  # disk full, out of memory, too many connections
        | asyncpg.LockNotAvailableError  # waited as long as it may
        | asyncpg.ReadOnlySQLTransactionError
        | asyncpg.InsufficientPrivilegeError
        | asyncpg.UndefinedFunctionError
        | asyncpg.PostgresSystemError
        | asyncpg.InternalServerError,
    )


def _fail(group: Sequence[_Waiting], error: Exception) -> None:
    for item in group:
        if not item.answer.done():
            item.answer.set_exception(error)
