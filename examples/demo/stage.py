"""Everybody who takes part in the demo, each with a seat of their own at the running installation."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import asyncpg

from examples.client import Answer, Caller
from examples.deal.company import Company
from examples.opening import read_notes
from examples.table.game import Game
from takeback.auth import Kind
from takeback.database import driver_url
from takeback.example import Installation


class NoExamples(Exception):
    """The installation runs without the example campaigns that the demo plays in."""


class Stage:
    """Hands out callers and the applications' own doors; `close` gives all of them back. Use it in ``async with``."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._notes = read_notes(installation.folder.path)
        self._exit = AsyncExitStack()
        self._seats: dict[tuple[str, Kind], Caller] = {}
        self._pool: asyncpg.Pool[Any] | None = None

    async def __aenter__(self) -> Self:
        if not {"game", "table", "deal", "crm"} <= self._notes.keys():
            raise NoExamples(
                f"The examples do not run on {self._installation.folder.path}. Nothing was played. Stop Takeback there "
                "and start it without --no-examples."
            )
        self._pool = await self._exit.enter_async_context(
            asyncpg.create_pool(driver_url(self._installation.urls.postgres), min_size=1, max_size=4)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    def campaign(self, key: str) -> str:
        """The id of an example's campaign: ``game`` or ``deal``."""
        return str(self._notes[key])

    def screen(self, player: str, adventure: str) -> str:
        """The address of a player's screen of an adventure."""
        return f"{self._notes['table']}/{player}/{adventure}"

    async def seat(self, sub: str, kind: Kind = "human") -> Caller:
        """The caller of *sub*."""
        if (sub, kind) not in self._seats:
            caller = Caller(self._installation.urls.http, sub, self._installation.token(sub, kind))
            self._seats[sub, kind] = await self._exit.enter_async_context(caller)
        return self._seats[sub, kind]

    async def game(self) -> Game:
        """The game's own application."""
        assert self._pool is not None
        return Game(self._pool)

    async def company(self) -> Company:
        """The company's own applications."""
        assert self._pool is not None
        notes = self._notes
        mailbox = Path(notes["mailbox"]) if "mailbox" in notes else None
        company = Company(notes["crm"], notes["crmToken"], self._pool, mailbox)
        return await self._exit.enter_async_context(company)


async def entries_of(reader: Caller, plan: Answer) -> list[Answer]:
    """Every entry that a plan mentions, read from the journal."""
    mentioned = dict.fromkeys(
        [
            *plan["targets"],
            *(item["entry"] for section in _SECTIONS for item in plan[section]),
        ]
    )
    return [await reader.get(f"/v1/entries/{entry}") for entry in mentioned]


_SECTIONS = ("steps", "notReversible", "unresolved", "readSince", "sideEffects", "suggestions")
