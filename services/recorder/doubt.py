"""Doubt: a call whose outcome nobody heard is looked up, or put to a person (J7); it is never forwarded again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg
import structlog

from recorder import intake
from recorder.answers import public_entry
from recorder.campaigns import Campaigns
from recorder.concluding import Conclusions, stands_of
from recorder.drafting import with_intake
from recorder.forwarding import result_without_declaration
from recorder.intake import Intake, Snapshot
from recorder.journal import Idempotency
from recorder.journal.reading import JournalReader, StoredEntry
from recorder.journal.vault import CampaignKeys, Vault
from recorder.kept import standing_for
from recorder.lifecycle import Step
from recorder.pinning import PinnedOperation
from recorder.resources import Resources
from recorder.servers import Servers
from recorder.settling import Proof, proof_in
from recorder.toolport.port import SelfMade, ToolPortError
from takeback.auth import Caller
from takeback.authority import authority_over
from takeback.errors import Problem, human_required, not_found
from takeback.extension import Observation, UndoOffer
from takeback.messages.entry import Effect, ResolutionRequest

log = structlog.get_logger()
_PATIENT_SECONDS: Final = 10.0
"""Nobody waits for what is asked here."""
_AT_ONCE: Final = 100
_SIDE_BY_SIDE: Final = 8

ResolveReversal = Callable[[StoredEntry, Caller, ResolutionRequest, str, Idempotency | None], Awaitable[dict[str, Any]]]
"""Settles a reversal in doubt or unverified by a person's word: that person's authority, and the key of the request."""


class Doubts:
    """Turns calls that outlived their lease into doubts, and settles doubts by evidence or by a person's word."""

    def __init__(
        self,
        *,
        pool: asyncpg.Pool,
        reader: JournalReader,
        vault: Vault,
        campaigns: Campaigns,
        servers: Servers,
        conclusions: Conclusions,
        resolve_reversal: ResolveReversal,
    ) -> None:
        self._pool = pool
        self._reader = reader
        self._vault = vault
        self._campaigns = campaigns
        self._servers = servers
        self._conclusions = conclusions
        self._resolve_reversal = resolve_reversal

    async def sweep(self) -> None:
        """One round over all campaigns, by any replica: two that meet at one entry hinder each other nowhere."""
        await self.lapse()
        await self.settle()

    async def lapse(self) -> int:
        """Turns pending calls past their lease into doubts; how many. Their holders no longer send."""
        rows = await self._pool.fetch(
            "select id from entries where status = 'pending' and kind <> 'reversal' and lease_until < now()"
            " order by lease_until limit $1",
            _AT_ONCE,
        )
        for row in rows:
            stored = await self._reader.entry(row["id"])
            if stored is None or stored.status != "pending":
                continue
            stands = stands_of(stored)
            detail = "The recorder that forwarded the call was lost before it heard the outcome."
            await self._conclusions.write(stands, {**stands.body, "detail": detail}, "doubt", ())
            log.warning("a call is in doubt", campaign=stored.campaign, run=stored.run, entry=stored.id)
        return len(rows)

    async def settle(self) -> int:
        """Asks the tool servers what became of the calls in doubt; how many were settled."""
        rows = await self._pool.fetch(
            "select id from entries where status = 'in_doubt' and kind <> 'reversal' order by created_at limit $1",
            _AT_ONCE,
        )
        gate = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def one(entry: str) -> bool:
            async with gate:
                return await self.settle_one(entry)

        return sum(await asyncio.gather(*(one(row["id"]) for row in rows)))

    async def settle_one(self, entry: str) -> bool:
        """Settles one doubt by what its tool server shows; whether it is settled now."""
        stored = await self._reader.entry(entry)
        if stored is None or stored.status != "in_doubt":
            return False
        kept = stored.entry
        try:
            operation = await self._servers.operation(stored.campaign, -1, kept["server"], kept["operation"])
            if not operation.can_observe:
                return False
            port = await self._servers.port(stored.campaign, kept["server"])
            if operation.manifest is not None and isinstance(port, SelfMade):
                return await self._looked_up(stored, operation, port)
            seen = await port.observe(_resources(stored).changes, entry=stored.id, deadline=_PATIENT_SECONDS)
        except (Problem, ToolPortError) as error:
            log.info("a doubt cannot be looked up now", entry=stored.id, run=stored.run, error=str(error))
            return False
        keys = await self._vault.keys(stored.campaign)
        snapshot = Snapshot.of(keys.unseal_fields(stored.id, "snapshot", kept["snapshot"]))
        proof = proof_in(seen, snapshot, _foretold(stored))
        if proof is None:
            return False
        taken = self._taken(stored, operation, proof, seen, snapshot)
        result = None if proof.result is None else result_without_declaration(proof.result)
        await self._write(
            stored, keys, operation, proof.step, taken, result, {"detail": proof.detail, "settledBy": proof.by}
        )
        return True

    async def _looked_up(self, stored: StoredEntry, operation: PinnedOperation, port: SelfMade) -> bool:
        """An ordinary server keeps no answers: its records stand exactly as foretold, or nothing is proven."""
        kept = stored.entry
        keys = await self._vault.keys(stored.campaign)
        snapshot = keys.unseal_fields(stored.id, "snapshot", kept["snapshot"])
        if not isinstance(snapshot, dict):
            return False
        arguments = keys.unseal_fields(stored.id, "arguments", kept["arguments"])
        found = await port.look_up(kept["operation"], arguments, snapshot, deadline=_PATIENT_SECONDS)
        if found is None:
            return False
        resources = _resources(stored)
        seen = Snapshot.of(snapshot)
        taken = intake.committed(found.meta, operation.declaration, resources, seen, None, stored.created_at)
        told = {"detail": "Its records stand exactly as the call was to leave them.", "settledBy": "record"}
        await self._write(stored, keys, operation, "commit", taken, None, told)
        return True

    async def resolve(
        self, entry: str, caller: Caller, wanted: ResolutionRequest, key: Idempotency | None = None
    ) -> dict[str, Any]:
        """A person says what became of a call that no observation could settle; answers the entry.

        *key* then stands for it. Raises 404 for strangers, `human-required`, 403 without authority (logged), 409 where there is
        no doubt.
        """
        stored = await self._reader.entry(entry)
        if stored is None:
            raise not_found()
        role = await self._campaigns.require(stored.campaign, caller)
        if not caller.is_human:
            await self._campaigns.security.write(stored.campaign, caller, "settle a doubt", entry)
            raise human_required("settle a doubt")
        kept = stored.entry
        authority = authority_over(caller.sub, role, kept["principal"], kept["undo"].get("undoAuthority"))
        if authority is None:
            raise await self._campaigns.security.refuse(stored.campaign, caller, "settle this doubt", entry)
        if stored.kind == "reversal":
            return await self._resolve_reversal(stored, caller, wanted, authority, standing_for(key, entry))
        if stored.status != "in_doubt":
            raise Problem(409, "not-in-doubt", f"The entry is {stored.status}. Nothing was changed.")
        operation = await self._operation(stored)
        happened = wanted.outcome == "happened"
        taken = (
            Intake(
                effects=_foretold(stored),
                undo=UndoOffer(kind="unknown", why="a person said that it happened; its tool server gave no token"),
                touched=_touched(stored),
            )
            if happened
            else Intake(
                undo=UndoOffer(kind="none", why="a person said that it did not happen"), touched=_touched(stored)
            )
        )
        told = {
            "resolution": {
                "outcome": wanted.outcome,
                "reason": wanted.reason,
                "by": {"sub": caller.sub, "kind": "human", "authority": authority},
            },
            "detail": f"A person settled the doubt: {wanted.reason}",
            "settledBy": "person",
        }
        keys = await self._vault.keys(stored.campaign)
        step: Step = "commit" if happened else "fail"
        return await self._write(stored, keys, operation, step, taken, None, told, standing_for(key, entry))

    async def _write(
        self,
        stored: StoredEntry,
        keys: CampaignKeys,
        operation: PinnedOperation | None,
        step: Step,
        taken: Intake,
        result: Any,
        told: dict[str, Any],
        key: Idempotency | None = None,
    ) -> dict[str, Any]:
        stands = stands_of(stored)
        secret = operation.declaration.secret if operation is not None else ()
        body = {**with_intake(stands.body, taken, keys, secret, result=result), **told}
        after = await self._conclusions.write(stands, body, step, taken.touched, key)
        log.info("a doubt was settled", run=stored.run, entry=stored.id, campaign=stored.campaign, status=after.status)
        entry = public_entry(after.body, after.label, after.created_at, after.concluded_at)
        return {**entry, "status": after.status}

    def _taken(
        self,
        stored: StoredEntry,
        operation: PinnedOperation,
        proof: Proof,
        seen: Observation,
        snapshot: Snapshot | None,
    ) -> Intake:
        resources = _resources(stored)
        declared = operation.declaration
        if proof.step == "fail":
            return intake.failed(declared, resources)
        if proof.by == "key":
            after = seen if intake.wants_observation(proof.meta, declared, snapshot) else None
            return intake.committed(proof.meta, declared, resources, snapshot, after, stored.created_at)
        assert snapshot is not None, "a record proves something only beside its state before"
        effect = intake.observed_effect(snapshot, seen)
        return Intake(
            effects=[effect],
            undo=UndoOffer(
                kind="unknown", why="it was found by the state of its record; its tool server gave no token"
            ),
            touched=[intake.Touched(effect.resource or "", "changes", effect.version)],
        )

    async def _operation(self, stored: StoredEntry) -> PinnedOperation | None:
        kept = stored.entry
        try:
            return await self._servers.operation(stored.campaign, -1, kept["server"], kept["operation"])
        except Problem:
            return None  # the tool server is no longer registered; the person's word stands all the same


def _resources(stored: StoredEntry) -> Resources:
    changed, used = ([t.resource for t in _touched(stored) if t.role == role] for role in ("changes", "uses"))
    return Resources(changed[0] if changed else None, tuple(used), others=tuple(changed[1:]))


def _touched(stored: StoredEntry) -> list[intake.Touched]:
    return [intake.Touched(item["resource"], item["role"], item["version"]) for item in stored.body["resources"]]


def _foretold(stored: StoredEntry) -> list[Effect]:
    return [Effect.model_validate(item) for item in stored.body.get("internal", {}).get("foretold") or ()]
