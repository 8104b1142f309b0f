"""The journal's door: append returns a durable place in the chain, or an error that says what was and was not written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from recorder.journal.appending import call_append, written_before
from recorder.journal.encoding import encode
from recorder.journal.session import SESSION, Session, end_session
from recorder.journal.unavailable import JournalUnavailable
from recorder.journal.unit import Appended, Refused, Unit
from recorder.journal.writer import REREAD_SECONDS, GroupWriter, session_ended, unavailable

Committed = Callable[[Sequence[tuple[Unit, Appended]]], None]
"""Told of what was committed, in the order of the journal, so that it can be published at once."""

_LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


class Journal:
    """One recorder's way to write. *pool* serves the cold paths, a connection of its own to *url* the hot one."""

    def __init__(self, url: str, pool: asyncpg.Pool, committed: Committed = lambda _: None) -> None:
        self._url = url
        self._pool = pool
        self._committed = committed
        self._writer = GroupWriter(url, committed)

    async def start(self) -> None:
        """Connect the writer; raises `JournalUnavailable` when the database cannot be reached."""
        await self._writer.start()

    async def stop(self) -> None:
        """Write what is queued and close the writer's connection; the pool stays its owner's."""
        await self._writer.stop()

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """What goes on from `start` to `stop`."""
        return self._writer.background

    async def append(self, unit: Unit) -> Appended:
        """Write *unit* as one, in a group commit with whatever else is waiting (J2).

        Raises `Refused` (nothing of it was written, and why), `JournalUnavailable` (J3: do not forward), `Unwritable` for
        what PostgreSQL cannot keep. A caller that is cancelled does not know: it rereads by its record's id.
        """
        return await self._writer.append(unit)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A transaction for the cold paths that write other tables in the same commit: append first, the rest after.

        Await nothing but the database inside: the streams that were appended to are locked until the block ends.
        Commits at the end of the block, rolls back when the block raises (`Refused` included). Raises
        `JournalUnavailable` like `append`; a commit whose answer was lost is reread before anything is said. A cancelled
        caller's commit is carried to its end first.
        """
        with _translated():
            connection = await self._pool.acquire(timeout=10)
        transaction = Transaction(connection)
        try:
            await transaction.begin()
            yield transaction
            await _to_its_end(self._commit(transaction))
        finally:
            await asyncio.shield(self._release(transaction))

    async def _commit(self, transaction: Transaction) -> None:
        try:
            await transaction.commit()
        except _LOST as error:
            await self._prove(transaction, error)
        except asyncpg.PostgresError as error:
            if not session_ended(error) and not transaction.connection.is_closed():
                if unavailable(error):
                    raise JournalUnavailable(
                        f"The journal could not be written: {error}. Nothing was written.", written=False
                    ) from error
                raise
            await self._prove(transaction, error)
        if transaction.appended:
            self._committed(transaction.appended)

    async def _prove(self, transaction: Transaction, error: BaseException) -> None:
        transaction.connection.terminate()
        try:
            async with asyncio.timeout(REREAD_SECONDS):
                session = await end_session(self._url, transaction.session)
            try:
                found = await written_before(session.connection, [unit for unit, _ in transaction.appended])
            finally:
                await session.close()
        except (*_LOST, asyncpg.PostgresError) as again:
            raise JournalUnavailable(
                "The connection to the journal was lost in its commit and could not be made again: it is unknown whether this "
                "was written. Read it again by its id before doing anything that depends on it.",
                written=None,
            ) from again
        if not found or None in found:
            raise JournalUnavailable(
                "The connection to the journal was lost. Nothing was written; try again.", written=False
            ) from error

    async def _release(self, transaction: Transaction) -> None:
        await transaction.close()
        await self._pool.release(transaction.connection)


class Transaction:
    """One commit of the journal and of other tables of the recorder."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.appended: list[tuple[Unit, Appended]] = []
        self.session: Session
        self._transaction: Any = None

    async def append(self, unit: Unit) -> Appended:
        """Write *unit* in this transaction; raises `Refused` and `Unwritable`. Durable only once the block has ended."""
        encoded = encode(unit)
        with _translated():
            answer = (await call_append(self.connection, [(unit, encoded)]))[0]
        if isinstance(answer, Refused):
            raise answer
        self.appended.append((unit, answer))
        return answer

    async def execute(self, sql: str, *arguments: Any) -> str:
        """Run one statement; answers its command tag."""
        with _translated():
            return str(await self.connection.execute(sql, *arguments))

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        """The rows of one statement."""
        with _translated():
            return list(await self.connection.fetch(sql, *arguments))

    async def fetchrow(self, sql: str, *arguments: Any) -> Any:
        """The first row of one statement, or None."""
        with _translated():
            return await self.connection.fetchrow(sql, *arguments)

    async def fetchval(self, sql: str, *arguments: Any) -> Any:
        """The first value of the first row of one statement, or None."""
        with _translated():
            return await self.connection.fetchval(sql, *arguments)

    async def begin(self) -> None:
        """Open it, and note who the connection is to the server, for the proof after a lost commit."""
        with _translated():
            row = await self.connection.fetchrow(SESSION)
            self._transaction = self.connection.transaction()
            await self._transaction.start()
        self.session = Session(self.connection, row["pid"], row["backend_start"])

    async def commit(self) -> None:
        """Make it durable."""
        transaction, self._transaction = self._transaction, None
        await transaction.commit()

    async def close(self) -> None:
        """Take back what was not committed."""
        if self._transaction is not None and not self.connection.is_closed():
            try:
                await self._transaction.rollback()
            except (*_LOST, asyncpg.PostgresError):
                self.connection.terminate()  # the server takes it back by itself


@contextmanager
def _translated() -> Iterator[None]:
    """Before the commit, a database that fails has written nothing; what it says of a statement goes through as it is."""
    try:
        yield
    except _LOST as error:
        raise JournalUnavailable(
            f"The journal cannot be reached: {error}. Nothing was written.", written=False
        ) from error
    except asyncpg.PostgresError as error:
        if unavailable(error) or session_ended(error) or isinstance(error, asyncpg.DeadlockDetectedError):
            raise JournalUnavailable(
                f"The journal could not be written: {error}. Nothing was written.", written=False
            ) from error
        raise


async def _to_its_end(work: Any) -> None:
    """Await *work* to its end even when the caller is cancelled meanwhile, then let the cancellation through."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
