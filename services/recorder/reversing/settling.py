"""Settling reversals in doubt or unverified: by evidence, under their own key, or by a person (J7, G9)."""

from __future__ import annotations

import time
from typing import Any, Final

import asyncpg
import structlog

from recorder.journal import Idempotency, JournalReader, JournalUnavailable, Refused, StoredEntry
from recorder.reversing.dispatch import Dispatch
from recorder.serial import Serial
from takeback.auth import Caller
from takeback.errors import Problem
from takeback.messages.entry import ResolutionRequest
from takeback.messages.plan import Receipt

log = structlog.get_logger()

_DOUBTFUL: Final = """
select e.id from entries e
where e.kind = 'reversal' and e.status = 'in_doubt'
  and not exists (select from reversals r
                  where r.id = convert_from(e.view, 'UTF8')::jsonb ->> 'plan' and r.status in ('queued', 'running'))
order by e.created_at limit 100
"""
_LONGEST_PAUSE: Final = 300.0


class Settling:
    """Looks after reversals whose end is not known. *pause_seconds*: before one is asked about again, doubled each time."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        reader: JournalReader,
        serial: Serial,
        dispatch: Dispatch,
        pause_seconds: float,
    ) -> None:
        self._pool = pool
        self._reader = reader
        self._serial = serial
        self._dispatch = dispatch
        self._pause_seconds = pause_seconds
        self._next: dict[str, tuple[float, float]] = {}

    async def sweep(self) -> None:
        """Ask about every reversal in doubt that no running plan is looking after."""
        doubtful = [row["id"] for row in await self._pool.fetch(_DOUBTFUL)]
        self._next = {id_: known for id_, known in self._next.items() if id_ in doubtful}
        for id_ in doubtful:
            at, pause = self._next.get(id_, (0.0, self._pause_seconds))
            if time.monotonic() < at:
                continue
            self._next[id_] = (time.monotonic() + pause, min(pause * 2, _LONGEST_PAUSE))
            try:
                await self.settle(id_)
            except (Problem, Refused, JournalUnavailable) as error:
                log.warning("a reversal stays in doubt", entry=id_, error=str(error))

    async def settle(self, reversal: str) -> Receipt | None:
        """Go on with a reversal in doubt under its key; another receipt when that settled it, else None."""
        stored = await self._reader.entry(reversal)
        if stored is None or stored.status != "in_doubt":
            return None
        async with self._serial.turn(stored.serial_key):
            stored = await self._reader.entry(reversal)
            if stored is None or stored.status != "in_doubt":
                return None
            return await self._dispatch.settle(stored)

    async def resolve(
        self,
        reversal: StoredEntry,
        caller: Caller,
        wanted: ResolutionRequest,
        authority: str,
        key: Idempotency | None = None,
    ) -> dict[str, Any]:
        """A person's word on a reversal in doubt or unverified: another receipt; the reversal's entry as it is then.

        The caller's *authority* was checked; *key* then stands for the entry. Raises `Problem` 409 when it is settled already.
        """
        if reversal.kind != "reversal" or reversal.status not in ("in_doubt", "unverified"):
            raise Problem(409, "not-in-doubt", f"The reversal is {reversal.status}. Nothing was changed.")
        told = "It was taken back" if wanted.outcome == "happened" else "It was not taken back"
        settled = f"{told}, says {caller.sub} ({authority}): {wanted.reason}"
        async with self._serial.turn(reversal.serial_key):
            try:
                await self._dispatch.resolve(reversal, wanted.outcome, settled, key)
            except Refused as refused:
                raise Problem(
                    409, "not-in-doubt", f"Somebody settled it in this moment ({refused.detail}). Nothing was changed."
                ) from refused
        stored = await self._reader.entry(reversal.id)
        assert stored is not None
        return stored.public
