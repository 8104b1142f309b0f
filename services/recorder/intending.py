"""Intents: the commit before a call is sent (J2, J3): snapshot, and one record that names the fence which it was made under.

A fence that this recorder left itself, in a campaign that has not moved, saves a look: the intent's own commit refuses where
anything moved, and then the call looks.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import NamedTuple

from recorder import failpoints, intake, policy
from recorder.concluding import interaction_of
from recorder.drafting import Body, Stands, draft, fence_of, step_of, touched_of, uses_of, with_snapshot
from recorder.forwarding import Clock, foreseen, observed, snapshot_of
from recorder.group_reader import GroupReader
from recorder.intake import Snapshot
from recorder.journal import CampaignKeys, Holds, Journal, Refused, Steady, Unit, Vault
from recorder.policy import Decision
from recorder.previews import preview_id
from recorder.resolving import Call, Outdated, Resolver
from recorder.resources import Resources
from recorder.serial import BESIDE, STANDING, Serial, Standing, busy
from recorder.toolport.port import ToolPort
from takeback import json
from takeback.errors import Problem


class MovedOn(Exception):
    """What a person agreed to is no longer what would be done: the call fails closed, and may be asked anew (S13)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Agreed:
    """A call that a person agreed to: where its entry stands, and the state of the record that the person was shown."""

    stands: Stands
    snapshot: Snapshot | None
    doubt: str | None


class Intended(NamedTuple):
    """A call whose intent is in the journal. *send_until*: past it (monotonic seconds) it is no longer sent."""

    resources: Resources
    stands: Stands
    snapshot: Snapshot | None
    fence: int | None
    send_until: float


class Intents:
    """Writes what is about to be sent. *deadline* is the tool's, *lease_seconds* how long an intent counts as under way."""

    def __init__(
        self,
        *,
        journal: Journal,
        vault: Vault,
        resolver: Resolver,
        serial: Serial,
        group_reader: GroupReader,
        clock: Clock,
        deadline: float,
        lease_seconds: float,
    ) -> None:
        self._journal = journal
        self._vault = vault
        self._resolver = resolver
        self._serial = serial
        self._group_reader = group_reader
        self._clock = clock
        self._deadline = deadline
        self._lease_seconds = lease_seconds

    async def intend(
        self, call: Call, port: ToolPort, agreed: Agreed | None
    ) -> Intended | tuple[Decision, Snapshot | None]:
        """Snapshot and intent, again for as long as others come between; or the decision that stops the call after all.

        Raises `MovedOn` for what a person agreed to, `Outdated` where something else than what was remembered holds now.
        """
        give_up = time.monotonic() + self._serial.wait_seconds
        keys = await self._vault.keys(call.campaign)
        declared = call.operation.declaration
        pause = 0.002
        fence = self._serial.remembered(call.serial_key) if call.remembered and agreed is None else None
        steady = None if fence is None else Steady(call.campaign, call.run.campaign_version, call.fetched)
        while True:
            standing = Standing(fence, None) if fence is not None else await self.standing(call)
            if agreed is None and standing.doubt is not None:
                return call.decision(standing.doubt), None
            snapshot = await snapshot_of(call, port, self._deadline)
            known = foreseen(call, snapshot)
            doubt = standing.doubt
            if doubt is None and fence is None and known.resources.others:
                doubt = await self.doubt_beside(known)
            if agreed is not None:
                await self._check_agreed(port, agreed, doubt, snapshot)
            elif (decision := _stops(call, known, doubt, snapshot)) is not None:
                if steady is not None:
                    raise Outdated  # it did not look yet: nobody is stopped by what is only remembered
                return decision, snapshot
            call = known
            if await self._preview_is_stale(call, port, snapshot):
                raise Outdated if steady is not None else _stale()
            stands, body = drafted(call, keys, agreed)
            body = with_snapshot(body, snapshot, keys, declared.secret)
            if agreed is not None:
                call, body = _with_asked(call, body)
            failpoints.reach("before-intent")
            try:
                return await self._append(call, stands, body, snapshot, standing.fence, steady)
            except Refused as refusal:
                if refusal.reason == "unsteady":
                    self._resolver.forget(call)
                    raise Outdated from refusal
                if refusal.reason not in ("fence-moved", "writer-pending"):
                    raise
                if time.monotonic() + pause > give_up:
                    raise busy() from refusal
                contended = refusal.reason == "writer-pending"
                fence = steady = None
            await asyncio.sleep(pause if contended else 0)
            pause = min(pause * 1.5, 0.1)

    async def _append(
        self,
        call: Call,
        stands: Stands,
        body: Body,
        snapshot: Snapshot | None,
        fence: int,
        steady: Steady | None,
    ) -> Intended:
        touched = intake.expected_touched(call.resources)
        record, change = step_of(stands, body, "intend", lease_seconds=self._lease_seconds)
        asked = time.monotonic()
        appended = await self._journal.append(
            Unit(
                records=[record],
                entries=[change],
                resources=uses_of(call.entry, call.campaign, touched),
                fence=fence_of(call.serial_key, fence),
                idempotency=call.idempotency if stands.status is None else None,
                interaction=interaction_of(call),
                holds=Holds(call.campaign, checked=checked) if (checked := call.resources.changed) else None,
                steady=steady,
                stream_open=True,
            )
        )
        self._clock.heard(appended.records[0].at)
        return Intended(
            call.resources,
            stands.after("pending", body, appended),
            snapshot,
            appended.fence,
            asked + self._lease_seconds - self._deadline,
        )

    async def standing(self, call: Call) -> Standing:
        """How things stand for the call right now; raises `Outdated` where what was remembered of its run does not hold."""
        row = await self._group_reader.one(
            STANDING,
            call.serial_key,
            call.campaign,
            call.operation.server,
            call.operation.name,
            call.arguments_hash,
            call.resources.changes,
            call.entry,
            call.run.id,
            call.caller.sub,
        )
        run = call.run
        moved = (row["run_status"], row["campaign_version"], row["role"]) != (
            run.status,
            run.campaign_version,
            run.role,
        )
        if moved or (call.fetched and row["unfetched"]):
            self._resolver.forget(call)
            if call.remembered:
                raise Outdated
        return Standing(row["fence"] or 0, row["doubt"])

    async def doubt_beside(self, call: Call) -> str | None:
        """The entry in doubt over one of the other records that the call changes."""
        others = json.dumps(call.resources.others).decode()
        row = await self._group_reader.one(BESIDE, call.campaign, call.entry, others)
        doubt: str | None = row["doubt"]
        return doubt

    async def _check_agreed(self, port: ToolPort, agreed: Agreed, doubt: str | None, snapshot: Snapshot | None) -> None:
        """Raises `MovedOn` where doubt or record are no longer as they were shown to whoever agreed (S13)."""
        if doubt != agreed.doubt:
            raise MovedOn("what is known of an earlier call has changed since this one was asked for")
        asked = agreed.snapshot
        if asked is None or asked.seen is None:
            return
        now = snapshot or await observed(asked.resource, port, self._deadline)
        if now.seen is None:
            raise MovedOn(f"the record {asked.resource} can no longer be read")
        if (now.seen.exists, now.seen.version) != (asked.seen.exists, asked.seen.version) or (
            now.seen.version is None and now.seen.fields != asked.seen.fields
        ):
            raise MovedOn(f"the record {asked.resource} has changed since the call was asked for")

    async def _preview_is_stale(self, call: Call, port: ToolPort, snapshot: Snapshot | None) -> bool:
        """Whether the preview that the caller saw was of another call, or of another version of the record (P7)."""
        if call.request.preview is None:
            return False
        if snapshot is None and call.resources.changes is not None and call.operation.can_observe:
            snapshot = await observed(call.resources.changes, port, self._deadline)
        version = snapshot.seen.version if snapshot is not None and snapshot.seen is not None else None
        keys = await self._vault.keys(call.campaign)
        return call.request.preview != preview_id(keys, call.caller.sub, call.arguments_hash, version)


def _stale() -> Problem:
    return Problem(
        409,
        "preview-stale",
        "The preview was of another call, or the record has changed since. Nothing was forwarded; preview again.",
    )


def _stops(call: Call, known: Call, doubt: str | None, snapshot: Snapshot | None) -> Decision | None:
    """The decision that stops the call after all, now that its state before is *known*, or None."""
    if snapshot is not None and snapshot.failure is not None:
        decision = policy.on_snapshot_failure(call.settings.policy, snapshot.failure)
        if decision.verdict != "allow":
            return decision
    if doubt is not None:
        return known.decision(doubt)
    if known is call:
        return None
    decision = known.decision()
    return None if decision.verdict == "allow" else decision


def _with_asked(call: Call, body: Body) -> tuple[Call, Body]:
    """An agreed call and its body with the records that it was seen to change when it was asked for, and those now."""
    asked = (touched.resource for touched in touched_of(body) if touched.role == "changes")
    call = call._replace(resources=call.resources.beside(asked))
    touches = [touched._asdict() for touched in intake.expected_touched(call.resources)]
    return call, {**body, "resources": touches}


def drafted(call: Call, keys: CampaignKeys, agreed: Agreed | None) -> tuple[Stands, Body]:
    """Where the call's entry stands before its first step, and what it says: as agreed, or new."""
    if agreed is not None:
        return agreed.stands, agreed.stands.body
    body = draft(call, keys, ())
    return Stands(call.entry, None, body, call.serial_key, not call.is_read), body
