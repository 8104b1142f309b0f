"""Concluding: one commit that says how a call ended, however late, and whoever found out (J2, J7).

A conclusion that cannot be written is tried again in the background: the entry is pending meanwhile, then in doubt, and
the late outcome settles it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from recorder.drafting import Body, Stands, fence_of, step_of, touched_of, uses_of, with_intake, without_answer
from recorder.forwarding import Clock, Forwarded
from recorder.intake import Touched
from recorder.journal import (
    Appended,
    EntryChange,
    Idempotency,
    Interaction,
    Journal,
    JournalUnavailable,
    NewRecord,
    Refused,
    Unit,
    Unwritable,
)
from recorder.journal.reading import JournalReader, StoredEntry
from recorder.journal.vault import Vault
from recorder.lifecycle import Step
from recorder.resolving import Call
from takeback import json
from takeback.ids import new_id

log = structlog.get_logger()
_LATE_SECONDS: Final = 3600.0
_LONGEST_PAUSE: Final = 5.0
_LINK_ATTEMPTS: Final = 5


class Conclusions:
    """Writes how calls ended."""

    def __init__(self, journal: Journal, reader: JournalReader, vault: Vault, clock: Clock) -> None:
        self._journal = journal
        self._reader = reader
        self._vault = vault
        self._clock = clock
        self._late: set[asyncio.Task[None]] = set()

    async def conclude(self, call: Call, stands: Stands, outcome: Forwarded) -> Stands:
        """Writes *outcome*; answers where the entry stands after, still pending where the journal is away."""
        body = await self._body(call, stands, outcome)
        return await self.write(stands, body, outcome.step, outcome.intake.touched)

    async def conclude_read(self, call: Call, stands: Stands, outcome: Forwarded) -> Stands:
        """Writes a read's one record, intent and outcome in one; raises where it cannot be written: no answer then (J2)."""
        body = await self._body(call, stands, outcome)
        try:
            return await self._append_read(call, stands, body, outcome.step, outcome.intake.touched)
        except Unwritable as error:
            body = _kept_of(stands, outcome.step, error)
            return await self._append_read(call, stands, body, outcome.step, touched_of(body))

    async def _append_read(
        self, call: Call, stands: Stands, body: Body, step: Step, touched: Sequence[Touched]
    ) -> Stands:
        record, change = step_of(stands, body, step)
        first = stands.status is None
        appended = await self._journal.append(
            Unit(
                records=[record],
                entries=[change],
                resources=uses_of(call.entry, call.campaign, touched),
                idempotency=call.idempotency if first else None,
                interaction=interaction_of(call),
                stream_open=True,
            )
        )
        return self._after(stands, body, change, appended)

    async def write(
        self, stands: Stands, body: Body, step: Step, touched: Sequence[Touched], key: Idempotency | None = None
    ) -> Stands:
        """Takes the entry one *step* further with *body*; see `conclude`. Somebody who settled it first is believed.

        *key*: of the request that settled it, kept in the same commit.

        What the journal cannot keep of *body* is left away: the call ran, and its entry says so (J7).
        """
        try:
            return await self._write(stands, body, step, touched, key)
        except Unwritable as error:
            body = _kept_of(stands, step, error)
            return await self._write(stands, body, step, touched_of(body), key)

    async def _write(
        self, stands: Stands, body: Body, step: Step, touched: Sequence[Touched], key: Idempotency | None
    ) -> Stands:
        record, change = step_of(stands, body, step)
        try:
            return await self._append(stands, body, record, change, touched, key)
        except JournalUnavailable as error:
            log.error("an outcome could not be written yet", entry=stands.id, run=change.run, error=str(error))
            late = asyncio.ensure_future(self._append_late(stands, body, record, change, touched, key))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            return stands

    async def drain(self) -> None:
        """Gives up on outcomes that still cannot be written: their entries are settled as in doubt (J7)."""
        for task in list(self._late):
            task.cancel()
        if self._late:
            await asyncio.wait(set(self._late))

    async def _body(self, call: Call, stands: Stands, outcome: Forwarded) -> Body:
        keys = await self._vault.keys(call.campaign)
        result = None if outcome.too_large else outcome.result
        body = with_intake(stands.body, outcome.intake, keys, call.operation.declaration.secret, result=result)
        return {**body, "detail": outcome.detail} if outcome.detail else body

    async def _append(
        self,
        stands: Stands,
        body: Body,
        record: NewRecord,
        change: EntryChange,
        touched: Sequence[Touched],
        key: Idempotency | None = None,
        *,
        once: str | None = None,
    ) -> Stands:
        for _ in range(_LINK_ATTEMPTS):
            linked = await self._link(body, change)
            try:
                appended = await self._journal.append(
                    Unit(
                        records=[record, *(link for link, _ in linked)],
                        entries=[change, *(original for _, original in linked)],
                        resources=uses_of(stands.id, change.campaign, touched),
                        fence=fence_of(stands.serial_key),
                        idempotency=key,
                        once=once,
                    )
                )
            except Refused as refusal:
                if refusal.reason == "status-changed" and linked:
                    continue  # the entry that it repairs moved meanwhile: link to it as it is now
                return await self._already(stands, refusal)
            return self._after(stands, body, change, appended)
        raise AssertionError(f"the entry that {stands.id} repairs never held still")

    async def _append_late(
        self,
        stands: Stands,
        body: Body,
        record: NewRecord,
        change: EntryChange,
        touched: Sequence[Touched],
        key: Idempotency | None,
    ) -> None:
        pause, waited = 0.1, 0.0
        while waited < _LATE_SECONDS:
            await asyncio.sleep(pause)
            waited += pause
            try:
                await self._append(stands, body, record, change, touched, key, once=record.id)
            except JournalUnavailable:
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            log.info("a late outcome was written", entry=stands.id, run=change.run)
            return
        log.error("an outcome was never written; its entry stays in doubt", entry=stands.id, run=change.run)

    async def _already(self, stands: Stands, refusal: Refused) -> Stands:
        """Somebody was there first: a late answer that was written after all, or a person."""
        stored = await self._reader.entry(stands.id)
        if stored is None:
            raise refusal
        log.warning(
            "an outcome came too late", entry=stands.id, run=stored.run, status=stored.status, reason=refusal.reason
        )
        return stands_of(stored)

    async def _link(self, body: Body, change: EntryChange) -> list[tuple[NewRecord, EntryChange]]:
        """The record in the repaired entry's own chain that names the repair (J14), once the repair has happened."""
        entry = body["entry"]
        repaired = entry["remedies"] or entry["corrects"]
        if repaired is None or change.status != "committed":
            return []
        stored = await self._reader.entry(repaired)
        if stored is None:
            raise AssertionError(f"the entry {repaired} that {entry['id']} repairs is gone")
        link = {"entry": entry["id"], "run": entry["run"], "kind": entry["kind"]}
        repairs = [*stored.body.get("repairs", []), link]
        return [linked(stored, {**stored.body, "entry": stored.entry, "repairs": repairs})]

    def _after(self, stands: Stands, body: Body, change: EntryChange, appended: Appended) -> Stands:
        self._clock.heard(appended.records[0].at)
        return stands.after(change.status, body, appended, concluded=change.concluded)


def _kept_of(stands: Stands, step: Step, error: Unwritable) -> Body:
    why = str(error).removesuffix(" Nothing was written.")
    log.error("an answer cannot be kept", entry=stands.id, run=stands.body["entry"]["run"], error=why)
    return without_answer(stands.body, step, why)


def interaction_of(call: Call) -> Interaction | None:
    """The claim of the call's run on the interaction that it names."""
    named = call.request.interaction
    return None if named is None else Interaction(call.campaign, named, call.run.id)


def stands_of(stored: StoredEntry) -> Stands:
    """Where an entry that was read back stands."""
    return Stands(
        id=stored.id,
        status=stored.status,  # type: ignore[arg-type]  # the database checks it
        body={**stored.body, "entry": stored.entry},
        serial_key=stored.serial_key,
        write=stored.write,
        label=stored.label,
        created_at=stored.created_at,
        concluded_at=stored.concluded_at,
    )


def linked(stored: StoredEntry, body: Body) -> tuple[NewRecord, EntryChange]:
    """A record `entry.remedied` about an entry whose status stays as it is."""
    entry = body["entry"]
    record = NewRecord(
        stream=stored.run,
        campaign=stored.campaign,
        id=new_id("rec"),
        type="entry.remedied",
        body=json.dumps(body),
        published=True,
        entry=stored.id,
    )
    change = EntryChange(
        id=stored.id,
        status=stored.status,  # type: ignore[arg-type]  # the database checks it
        run=stored.run,
        campaign=stored.campaign,
        server=entry["server"],
        operation=entry["operation"],
        kind=stored.kind,
        principal=entry["principal"],
        agent=entry["agent"],
        expect=[stored.status],  # type: ignore[list-item]  # the database checks it
        tier=entry["tier"],
        serial_key=stored.serial_key,
        write=stored.write,
        concluded=stored.concluded_at is not None,
    )
    return record, change
