"""Many callers' questions in one statement: what each call asks of the database before it may go on (facts.md, hot path).

A pool costs every question a connection, a round trip and another one to clean up. Here one connection drains a queue: whoever
asks while a statement is under way is answered by the next one. An answer is never older than its question.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, Final

import asyncpg

from recorder.journal.session import connect_session

_SECONDS: Final = 10.0
_AT_ONCE: Final = 256


class GroupReader:
    """Asks statements whose parameters are arrays; the first numbers the questions, and rows carry that number as `n`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection | None = None
        self._queue: list[tuple[str, tuple[Any, ...], asyncio.Future[Any]]] = []
        self._working: asyncio.Task[None] | None = None

    async def one(self, statement: str, *arguments: Any) -> Any:
        """The row that answers *arguments*, or None; raises asyncpg's errors, and `JournalUnavailable` without a database."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((statement, arguments, answer))
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work(), name="group reader")
        return await answer

    async def stop(self) -> None:
        """Answers what was asked and closes the connection."""
        if self._working is not None:
            await self._working
        if self._connection is not None:
            await self._connection.close()

    async def _work(self) -> None:
        while self._queue:
            batch, self._queue = self._queue[:_AT_ONCE], self._queue[_AT_ONCE:]
            groups: dict[str, list[tuple[tuple[Any, ...], asyncio.Future[Any]]]] = defaultdict(list)
            for statement, arguments, answer in batch:
                groups[statement].append((arguments, answer))
            for statement, asked in groups.items():
                await self._ask(statement, asked)

    async def _ask(self, statement: str, asked: list[tuple[tuple[Any, ...], asyncio.Future[Any]]]) -> None:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = (await connect_session(self._url)).connection
            columns = [list(column) for column in zip(*(arguments for arguments, _ in asked), strict=True)]
            rows = await self._connection.fetch(statement, list(range(len(asked))), *columns, timeout=_SECONDS)
        except Exception as error:  # whatever it is, each that asked hears of it
            if self._connection is not None and not isinstance(error, asyncpg.PostgresError):
                self._connection.terminate()
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        found = {row["n"]: row for row in rows}
        for number, (_, answer) in enumerate(asked):
            if not answer.done():
                answer.set_result(found.get(number))
