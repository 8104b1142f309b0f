"""How a step ends in the journal: one commit for receipt, reversal entry, original, and what hangs on it (G10)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import asyncpg

from recorder.journal import (
    EntryChange,
    Idempotency,
    Journal,
    JournalReader,
    NewRecord,
    Refused,
    StoredEntry,
    Unit,
    Vault,
)
from recorder.reversing import bodies
from recorder.reversing.bodies import Claim
from recorder.reversing.finding import Finding
from recorder.reversing.receipts import Word, receipt_of, step_id
from recorder.reversing.sealing import TOKEN_PATH
from takeback import json
from takeback.extension import Observation, UndoAnswer
from takeback.ids import new_id
from takeback.messages.plan import Receipt
from takeback.metrics import RECEIPTS

_EXERCISED: Final = """
insert into exercised (campaign, server, operation, pin, entry)
select campaign, server, operation, pin, $4 from operations where campaign = $1 and server = $2 and operation = $3
on conflict do nothing
"""

_ENDS: Final[dict[str, tuple[str, str]]] = {
    "reverted": ("committed", "entry.committed"),
    "already_reverted": ("committed", "entry.committed"),
    "conflict": ("failed", "entry.failed"),
    "failed": ("failed", "entry.failed"),
    "in_doubt": ("in_doubt", "entry.in_doubt"),
    "unverified": ("unverified", "entry.in_doubt"),
}
"""The status of the reversal's entry by the step's outcome, and the record that tells of it."""


class Endings:
    """Writes receipts, each once: whoever comes second is given the receipt that is there."""

    def __init__(self, pool: asyncpg.Pool, journal: Journal, reader: JournalReader, vault: Vault) -> None:
        self._pool = pool
        self._journal = journal
        self._reader = reader
        self._vault = vault

    async def note(self, campaign: str, plan: str, receipt: Receipt) -> Receipt:
        """Write the receipt of a step for which nothing was sent."""
        return await self._append(
            Unit(records=[_record(campaign, plan, receipt)], once=step_id(plan, receipt.entry)), receipt
        )

    async def conclude(
        self,
        claimed: StoredEntry,
        claim: Claim,
        original: StoredEntry,
        finding: Finding,
        at: datetime,
        key: Idempotency | None = None,
    ) -> Receipt:
        """Write what *finding* proves of the claim at *at*.

        A step that has its receipt gets another: that one settled its doubt. *key*: of the person's request that says so.
        """
        word = Word(claim.approved_by, claim.authority, at)
        outcome = finding.judgement.outcome
        happened = outcome in ("reverted", "already_reverted", "unverified")
        receipt = receipt_of(
            original.id,
            claimed.id,
            finding.judgement,
            finding.parts,
            word,
            fields=claim.fields,
            side_effects=finding.said.side_effects if happened and finding.said is not None else [],
        )
        unit = await self._unit(claimed, claim, original, receipt, finding.after, finding.said)
        written = await self._append(unit._replace(idempotency=key), receipt)
        if written.outcome == "reverted":
            entry = original.entry
            await self._pool.execute(_EXERCISED, original.campaign, entry["server"], entry["operation"], original.id)
        return written

    async def _append(self, unit: Unit, receipt: Receipt) -> Receipt:
        try:
            await self._journal.append(unit)
        except Refused as refused:
            if refused.reason not in ("status-changed", "duplicate-record"):
                raise
            known = await self._reader.record(unit.records[-1].id)
            if known is None:
                raise
            return Receipt.model_validate(json.loads(known.body)["receipt"])
        RECEIPTS.labels(receipt.outcome).inc()
        return receipt

    async def _unit(
        self,
        claimed: StoredEntry,
        claim: Claim,
        original: StoredEntry,
        receipt: Receipt,
        after: Mapping[str, Observation],
        said: UndoAnswer | None,
    ) -> Unit:
        status, told = _ENDS[receipt.outcome]
        run, campaign = original.run, original.campaign
        own = bodies.concluded_body(
            claimed,
            claim,
            status,
            await self._vault.keys(campaign),
            after=after,
            undo=await self._offered(claimed, original, said) if status == "committed" else None,
            remaps=said.remaps if said is not None else [],
            side_effects=receipt.side_effects,
            detail=receipt.detail,
        )
        records = [bodies.about(run, campaign, claimed.id, told, own, published=True)]
        expect = ["pending", "in_doubt", "unverified"] if claimed.status == "unverified" else ["pending", "in_doubt"]
        changes = [
            bodies.change(own, serial_key=claimed.serial_key, expect=expect, concluded=status != "in_doubt"),
        ]
        if status == "committed":
            body = bodies.reverted_body(original, claim, claim.reversal, receipt.at)
            # First: everybody waits for this one.
            records.insert(0, bodies.about(run, campaign, original.id, "entry.reverted", body, published=True))
            changes.append(_settled(body, original, "reverting"))
            for above, restored, expected in await self._above(original, claim, receipt, own["entry"]):
                told = "entry.reverted" if restored["entry"]["status"] == "reverted" else "entry.committed"
                records.append(bodies.about(run, campaign, above.id, told, restored, published=True))
                changes.append(_settled(restored, above, expected))
        elif status == "failed":
            # Nobody outside heard of `reverting`, so nobody needs to hear that it is over.
            body = bodies.standing_body(original, "committed")
            records.append(bodies.about(run, campaign, original.id, "entry.restored", body, published=False))
            changes.append(_settled(body, original, "reverting"))
        id_ = step_id(claim.plan, receipt.entry)
        again = claimed.status != "pending" and await self._reader.record(id_) is not None
        step = _record(campaign, claim.plan, receipt, new_id("stp") if again else id_)
        return Unit(
            records=[*records, step],
            entries=changes,
            resources=bodies.touched(own) if status == "committed" else (),
            once=step.id,
        )

    async def _above(
        self, original: StoredEntry, claim: Claim, receipt: Receipt, own: Mapping[str, Any]
    ) -> list[tuple[StoredEntry, dict[str, Any], str]]:
        """Up the line of a reversal that was taken back: what it took back is committed again, and so on in turn (S12)."""
        versions = {effect["resource"]: effect["version"] for effect in own["effects"]}
        changed: list[tuple[StoredEntry, dict[str, Any], str]] = []
        below, comes_back = original, True
        while below.reverts is not None:
            above = await self._reader.entry(below.reverts)
            assert above is not None
            if comes_back:
                undo = await self._resealed(claim.reversal, above, own["undo"])
                changed.append((above, bodies.restored_body(above, claim.plan, versions, undo), "reverted"))
            else:
                changed.append((above, bodies.reverted_body(above, claim, below.id, receipt.at), "committed"))
            below, comes_back = above, not comes_back
        return changed

    async def _offered(
        self, claimed: StoredEntry, original: StoredEntry, said: UndoAnswer | None
    ) -> dict[str, Any] | None:
        """The reversal's own undo as its entry keeps it: the token sealed, the original's authority where none is named."""
        if said is None or said.undo is None:
            return None
        kept = {name: value for name, value in said.undo.wire().items() if name != "compensationToken"}
        if kept.get("undoAuthority") is None:
            kept["undoAuthority"] = original.entry["undo"].get("undoAuthority")
        if said.undo.compensation_token is not None:
            keys = await self._vault.keys(original.campaign)
            kept["compensationToken"] = keys.seal(claimed.id, TOKEN_PATH, said.undo.compensation_token)
        return kept

    async def _resealed(self, holder: str, receiver: StoredEntry, undo: Mapping[str, Any]) -> dict[str, Any] | None:
        """*undo*, whose token is sealed for *holder*, as *receiver*'s entry may keep it."""
        if "compensationToken" not in undo:
            return None
        keys = await self._vault.keys(receiver.campaign)
        token = keys.unseal(holder, TOKEN_PATH, undo["compensationToken"])
        return {**undo, "compensationToken": keys.seal(receiver.id, TOKEN_PATH, token)}


def _settled(body: Mapping[str, Any], stored: StoredEntry, expected: Any) -> EntryChange:
    return bodies.change(body, serial_key=stored.serial_key, expect=[expected], write=stored.write, concluded=True)


def _record(campaign: str, plan: str, receipt: Receipt, id_: str | None = None) -> NewRecord:
    return NewRecord(
        stream=campaign,
        campaign=campaign,
        kind="campaign",
        id=id_ or step_id(plan, receipt.entry),
        type="reversal.step",
        body=json.dumps({"plan": plan, "campaign": campaign, "receipt": receipt.wire()}),
        published=True,
    )
