"""One step of a reversal: authority, claim, undo, observe, receipt (design.md, And back).

The claim is one commit, and so is the receipt. Whatever happens in between is found again under the reversal entry's id, which
is the idempotency key: it is resumed under it and never sent anew (G9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

import asyncpg
import structlog

from recorder.campaigns import Campaigns
from recorder.failpoints import reach
from recorder.journal import Fence, Holds, Journal, JournalReader, Refused, StoredEntry, Unit, Vault
from recorder.resources import serial_key_of
from recorder.reversing import bodies
from recorder.reversing.bodies import Claim
from recorder.reversing.dispatch import Dispatch
from recorder.reversing.ending import Endings
from recorder.reversing.observing import Observer
from recorder.reversing.outcome import Judgement, Part
from recorder.reversing.receipts import Word, plain_receipt, receipt_of
from recorder.reversing.remaps import current_names
from recorder.reversing.reversal import Reversal
from recorder.reversing.sealing import secret_fields
from recorder.reversing.work import Expected, Settled, effects_of, expected_versions, rewritten, verdict
from recorder.serial import Serial
from takeback.auth import Caller
from takeback.auth import Kind as CallerKind
from takeback.authority import authority_over
from takeback.errors import Problem
from takeback.extension import Observation
from takeback.ids import new_id
from takeback.messages.campaign import Serialize
from takeback.messages.entry import Entry
from takeback.messages.plan import Receipt, Step, StepOutcome

log = structlog.get_logger()

_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
_PATIENCE: Final = 2
"""Leases that a step waits for: somebody who died with one is past it by then."""


class ClaimMoved(Exception):
    """Something came between looking and claiming; look again."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A step that may be claimed: the entry, who says so, and over which versions of which records."""

    stored: StoredEntry
    entry: Entry
    word: Word
    names: Mapping[str, str]
    expected: Mapping[str, Expected]


class Stepping:
    """Takes steps. *lease_seconds* covers an undo's deadline and what comes after it."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        journal: Journal,
        reader: JournalReader,
        vault: Vault,
        serial: Serial,
        campaigns: Campaigns,
        observer: Observer,
        dispatch: Dispatch,
        endings: Endings,
        lease_seconds: float,
    ) -> None:
        self._pool = pool
        self._journal = journal
        self._reader = reader
        self._vault = vault
        self._serial = serial
        self._campaigns = campaigns
        self._observer = observer
        self._dispatch = dispatch
        self._endings = endings
        self._lease_seconds = lease_seconds

    async def take(self, reversal: Reversal, step: Step) -> Receipt:
        """Take *step* to its receipt, which is in the journal when this returns.

        Raises `JournalUnavailable`: the step is then resumed by whoever takes the reversal up again.
        """
        clock = asyncio.get_running_loop().time
        give_up = clock() + _PATIENCE * self._lease_seconds
        pause = _PAUSE
        while True:
            try:
                return await self._try(reversal, step)
            except (ClaimMoved, Problem) as moved:
                why = str(moved)
            if clock() >= give_up:
                break
            log.info("step starts over", entry=step.entry, plan=reversal.id, why=why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        detail = f"Others came in between for all the time there was ({why}). Nothing was sent; try again later."
        receipt = plain_receipt(step.entry, "failed", self._word(reversal, step), detail)
        return await self._endings.note(reversal.campaign, reversal.id, receipt)

    async def _try(self, reversal: Reversal, step: Step) -> Receipt:
        stored = await self._reader.entry(step.entry)
        if stored is None or stored.campaign != reversal.campaign:
            raise LookupError(f"the plan {reversal.id} names {step.entry}, which is no entry of its campaign")
        entry = Entry.model_validate(stored.public)
        word = self._word(reversal, step)
        outcomes: dict[str, StepOutcome] = {name: receipt.outcome for name, receipt in reversal.done.items()}
        settled = verdict(reversal.decided, step, entry, outcomes, word.at)
        if isinstance(settled, Settled):
            return await self._settled(reversal, entry, settled, word)
        if entry.status == "reverting":
            return await self._claimed_before(reversal, entry, word)
        role = await self._campaigns.role(reversal.campaign, word.by)
        authority = authority_over(word.by, role, entry.principal, entry.undo.undo_authority)
        if authority is None:
            caller = Caller(word.by, cast(CallerKind, reversal.kind))
            await self._campaigns.security.write(reversal.campaign, caller, "take this back", step.entry)
            detail = "Whoever approved it may no longer take it back: a fresh approval is needed. Nothing was sent."
            return await self._settled(reversal, entry, Settled("authority_lost", detail), word)
        word = Word(word.by, authority, word.at)
        broken = await self._broken_chain(stored) or await self._dispatch.unusable(stored)
        if broken is not None:
            return await self._settled(reversal, entry, Settled("failed", broken), word)
        names = await current_names(
            self._pool, reversal.campaign, [effect.resource for effect in effects_of(entry) if effect.resource]
        )
        expected = expected_versions(reversal.decided, step, entry, reversal.left, names)
        if expected is None:
            detail = (
                "Nobody saw the record's version when this was approved, so an override binds to none. Make a new plan."
            )
            return await self._settled(reversal, entry, Settled("failed", f"{detail} Nothing was sent."), word)
        ready = Ready(stored, entry, word, names, expected)
        resource = next(iter(expected), None)
        key = serial_key_of(cast(Serialize, reversal.serialize), reversal.campaign, stored.run, resource)
        async with self._serial.turn(key):
            return await self._in_turn(reversal, step, ready, key)

    async def _in_turn(self, reversal: Reversal, step: Step, ready: Ready, key: str | None) -> Receipt:
        fence = await self._fence(key)
        seen = await self._observer.see_all(reversal.campaign, ready.entry.server, list(ready.expected))
        failed = [f"{name}: {look.error}" for name, look in seen.items() if look.error is not None and not look.never]
        if failed:
            detail = f"The record could not be read ({'; '.join(failed)[:500]}). Nothing was sent; try again later."
            return await self._settled(reversal, ready.entry, Settled("failed", detail), ready.word)
        before = {name: look.observation for name, look in seen.items() if look.observation is not None}
        moved = [name for name, look in before.items() if not ready.expected[name].met_by(look.version)]
        # Versions come by twice where a record is made anew: what the plan saw of the fields counts, and what they hold now.
        foreseen = step.conflict is not None and bool(step.conflict.fields) and not reversal.decided.forced(step)
        secret = secret_fields(ready.stored.entry.get("effects") or [])
        other = rewritten(reversal.decided, step, ready.entry, reversal.left, before, secret)
        if moved or foreseen or other:
            return await self._conflict(reversal, ready, before, moved, other)
        fields = reversal.decided.fields.get(step.entry)
        first = next(iter(ready.expected.values()), Expected(None, any_version=True))
        primary = before.get(next(iter(ready.expected), ""))
        claim = Claim(
            reversal=new_id("ent"),
            original=step.entry,
            plan=reversal.id,
            approved_by=ready.word.by,
            authority=ready.word.authority,
            if_version=primary.version if first.any_version and primary is not None else first.version,
            force=reversal.decided.forced(step),
            fields=list(fields) if fields else None,
            expected=ready.expected,
            before={name: before.get(name, Observation()) for name in ready.expected},
            reason=reversal.decided.reason,
        )
        claimed, original = await self._claim(ready, claim, key, fence)
        reach("at-claim")
        receipt = await self._dispatch.run(claimed, claim, original, ready.names, lambda: reversal.now)
        await self.remember(reversal, receipt)
        return receipt

    async def _claim(
        self, ready: Ready, claim: Claim, key: str | None, fence: int | None
    ) -> tuple[StoredEntry, StoredEntry]:
        """One commit: the reversal's entry pending, the original `reverting`; both as they stand then.

        Raises `ClaimMoved` when somebody was faster.
        """
        original = ready.stored
        pending = bodies.reversal_body(original, claim, await self._vault.keys(original.campaign))
        reverting = bodies.standing_body(original, "reverting", claim.plan)
        unit = Unit(
            records=[
                bodies.about(
                    original.run, original.campaign, claim.reversal, "entry.intended", pending, published=False
                ),
                bodies.about(
                    original.run, original.campaign, original.id, "entry.reverting", reverting, published=False
                ),
            ],
            entries=[
                bodies.change(pending, serial_key=key, lease_seconds=self._lease_seconds),
                bodies.change(
                    reverting,
                    serial_key=original.serial_key,
                    expect=["committed"],
                    write=original.write,
                    concluded=True,
                ),
            ],
            resources=bodies.touched(pending),
            fence=None if key is None else Fence(key, fence),
            holds=Holds(original.campaign, checked=list(claim.expected), owner=claim.plan),
        )
        try:
            first, second = (await self._journal.append(unit)).records
        except Refused as refused:
            raise ClaimMoved(f"{refused.reason}: {refused.detail}") from refused
        assert first.label is not None
        claimed = StoredEntry(
            id=claim.reversal,
            run=original.run,
            campaign=original.campaign,
            status="pending",
            serial_key=key,
            write=True,
            kind="reversal",
            reverts=original.id,
            label=first.label,
            view_seq=first.seq,
            body=pending,
            lease_until=None,
            created_at=first.at,
            concluded_at=None,
        )
        return claimed, replace(original, status="reverting", view_seq=second.seq, body=reverting)

    async def _broken_chain(self, original: StoredEntry) -> str | None:
        """Why a reversal cannot be taken back: what it took back is not taken back any more. None for all others."""
        below, wanted = original, "reverted"
        while below.reverts is not None:
            above = await self._reader.entry(below.reverts)
            assert above is not None
            if above.status != wanted:
                return f"It took back {above.id}, which is {above.status} by now. Nothing was sent."
            below, wanted = above, "committed" if wanted == "reverted" else "reverted"
        return None

    async def _claimed_before(self, reversal: Reversal, entry: Entry, word: Word) -> Receipt:
        """The entry is claimed: by this very plan before a crash (go on with it), or by another (hear how that ends)."""
        claimed = await self._claim_on(entry.id)
        if claimed is None:
            raise ClaimMoved("the claim was settled in this moment")
        if claimed.status in ("pending", "in_doubt") and claimed.body["plan"] == reversal.id:
            # Whoever held this reversal before is gone, or slow: the key is the same, so nothing is done twice.
            async with self._serial.turn(claimed.serial_key):
                receipt = await self._dispatch.resume(claimed)
            await self.remember(reversal, receipt)
            return receipt
        if claimed.status == "pending" and claimed.lease_until is not None and claimed.lease_until > word.at:
            return await self._again_later(reversal, entry, claimed)
        outcome: StepOutcome = "unverified" if claimed.status == "unverified" else "in_doubt"
        detail = f"{claimed.id} was sent before and is {claimed.status.replace('_', ' ')}: nothing was sent now."
        return await self._settled(reversal, entry, Settled(outcome, detail), word, claimed.id)

    async def _again_later(self, reversal: Reversal, entry: Entry, claimed: StoredEntry) -> Receipt:
        while True:
            stored, now = await self._reader.entry(claimed.id), await self._reader.now()
            assert stored is not None
            if stored.status != "pending" or stored.lease_until is None or stored.lease_until <= now:
                break
            await asyncio.sleep(_PAUSE)
        step = next(step for step in reversal.decided.plan.steps if step.entry == entry.id)
        return await self._try(reversal, step)

    def _word(self, reversal: Reversal, step: Step) -> Word:
        return Word(reversal.decided.by, reversal.authorities.get(step.entry, "none"), reversal.now)

    async def _claim_on(self, entry: str) -> StoredEntry | None:
        id_ = await self._pool.fetchval(
            "select id from entries where reverts = $1 and status in ('pending', 'in_doubt', 'unverified')", entry
        )
        return None if id_ is None else await self._reader.entry(id_)

    async def _conflict(
        self,
        reversal: Reversal,
        ready: Ready,
        before: Mapping[str, Observation],
        moved: list[str],
        other: Mapping[str, list[str]],
    ) -> Receipt:
        if moved:
            name = moved[0]
            detail = (
                f"{name} stands at version {before[name].version}, expected was {ready.expected[name].version}: somebody"
                " changed it since. Nothing was changed."
            )
        elif other:
            name = next(iter(other))
            detail = (
                f"{name} stands at the expected version with other content ({', '.join(other[name])[:200]}): somebody changed"
                " it since. Nothing was changed."
            )
        else:
            detail = "The plan shows fields that somebody changed since, and no override goes over them. Nothing was changed."
        parts = [
            Part(resource, wanted.version, before.get(resource), before.get(resource), None, True)
            for resource, wanted in ready.expected.items()
        ]
        receipt = receipt_of(ready.entry.id, None, Judgement("conflict", detail), parts, ready.word)
        return await self._endings.note(reversal.campaign, reversal.id, receipt)

    async def _settled(
        self, reversal: Reversal, entry: Entry, settled: Settled, word: Word, by: str | None = None
    ) -> Receipt:
        if settled.outcome == "already_reverted":
            by = entry.reverted_by
        receipt = plain_receipt(entry.id, settled.outcome, word, settled.detail, by)
        await self.remember(reversal, receipt)
        return await self._endings.note(reversal.campaign, reversal.id, receipt)

    async def remember(self, reversal: Reversal, receipt: Receipt) -> None:
        """At which versions the step left its records: what later steps on them have to expect (S11)."""
        if receipt.entry == reversal.decided.plan.steps[-1].entry:
            return  # nobody comes after it
        if receipt.outcome in ("reverted", "already_reverted") and receipt.reversal is not None:
            stored = await self._reader.entry(receipt.reversal)
            left = reversal.left_now if receipt.outcome == "reverted" else reversal.left_before
            for effect in stored.body["entry"].get("effects") or () if stored is not None else ():
                if effect.get("resource") is not None:
                    left[effect["resource"]] = effect.get("version")

    async def _fence(self, key: str | None) -> int | None:
        if key is None:
            return None
        value = await self._pool.fetchval("select value from fences where serial_key = $1", key)
        return int(value or 0)
