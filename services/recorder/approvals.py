"""Approvals: a call that waits for a person (P6). No connection, lock or transaction is held while the person thinks.

`ask` writes the entry that waits; `decide` and `expire` say how the waiting ended; `due` hands an approved one to one replica.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import structlog

from recorder import intake
from recorder.answers import Answer, answer_of
from recorder.campaigns import Campaigns
from recorder.concluding import interaction_of, stands_of
from recorder.drafting import Body, Stands, draft, step_of, uses_of, with_snapshot
from recorder.forwarding import before_asking, foreseen
from recorder.intake import Snapshot
from recorder.journal import Idempotency, Journal, NewRecord, Unit
from recorder.journal.chain import instant
from recorder.journal.events_of import public_view
from recorder.journal.reading import JournalReader, StoredEntry
from recorder.journal.vault import Vault
from recorder.kept import for_callers, standing_for
from recorder.lifecycle import Step
from recorder.policy import Decision
from recorder.resolving import Call
from recorder.servers import Servers
from recorder.toolport.port import OBSERVE_SECONDS, ToolPortError
from takeback import json
from takeback.auth import Caller
from takeback.authority import authority_over
from takeback.errors import Problem, human_required, not_found
from takeback.ids import new_id
from takeback.messages.entry import ApprovalDecision

log = structlog.get_logger()
ASKING = frozenset({"approval", "asked", "why", "expiresAt"})
"""What the body of `approval.requested` says beside the entry."""
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Due:
    """An approved call that this replica is to forward."""

    approval: str
    entry: str
    document: dict[str, Any]


class Approvals:
    """The use cases of asking a person."""

    def __init__(
        self,
        *,
        pool: asyncpg.Pool,
        journal: Journal,
        reader: JournalReader,
        vault: Vault,
        campaigns: Campaigns,
        servers: Servers,
        doubt_beside: Callable[[Call], Awaitable[str | None]],
        seconds: float,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool = pool
        self._journal = journal
        self._reader = reader
        self._vault = vault
        self._campaigns = campaigns
        self._servers = servers
        self._doubt_beside = doubt_beside
        self._lasts = timedelta(seconds=seconds)
        self.wake = wake

    async def ask(self, call: Call, decision: Decision, snapshot: Snapshot | None) -> Answer:
        """Writes the entry that waits, with who was asked, the dry run and the record as they are shown; answers 202."""
        keys = await self._vault.keys(call.campaign)
        secret = call.operation.declaration.secret
        preview, snapshot = await self._shown(call, snapshot)
        call = foreseen(call, snapshot)
        if call.resources.others and call.doubt is None and (doubt := await self._doubt_beside(call)) is not None:
            call, decision = call._replace(doubt=doubt), call.decision(doubt)
        approval = new_id("apr")
        body = with_snapshot(draft(call, keys, decision.because), snapshot, keys, secret)
        body = _asking(body, approval, call, preview)
        now = await self._reader.now()
        whom = await self._whom(call, call.operation.expected_undo["undoAuthority"])
        asked = [{"sub": sub, "at": instant(now)} for sub in whom]
        expires = now + self._lasts
        body |= {
            "approval": approval,
            "asked": [item["sub"] for item in asked],
            "why": "; ".join(decision.because),
            "expiresAt": instant(expires),
        }
        document = {
            "id": approval,
            "entry": call.entry,
            "status": "pending",
            "why": list(decision.because),
            "preview": keys.seal_fields(call.entry, "preview", preview, secret),
            "snapshot": body["entry"]["snapshot"],
            "asked": asked,
            "decidedBy": None,
            "authenticatedBy": None,
            "expiresAt": instant(expires),
        }
        stands = Stands(call.entry, None, body, call.serial_key, not call.is_read)
        record, change = step_of(stands, body, "ask")
        async with self._journal.transaction() as tx:
            appended = await tx.append(
                Unit(
                    records=[record],
                    entries=[change],
                    resources=uses_of(call.entry, call.campaign, intake.expected_touched(call.resources)),
                    idempotency=call.idempotency,
                    interaction=interaction_of(call),
                    stream_open=True,
                )
            )
            await tx.execute(
                "insert into approvals (id, entry, campaign, run, status, document, expires_at)"
                " values ($1, $2, $3, $4, 'pending', $5, $6)",
                approval, call.entry, call.campaign, call.run.id, json.dumps(document).decode(), expires,
            )  # fmt: skip
        log.info("call asked", campaign=call.campaign, run=call.run.id, entry=call.entry, because=decision.because)
        written = appended.records[0]
        waiting = stands._replace(status="awaiting_approval", label=written.label, created_at=written.at)
        entry = answer_of(waiting).document["entry"]
        return Answer(202, {"entry": entry, "approval": for_callers(document), "why": decision.why})

    async def page(self, campaign: str, caller: Caller, status: str | None, cursor: str | None) -> dict[str, Any]:
        """The campaign's approvals, newest first."""
        await self._campaigns.require(campaign, caller)
        rows = await self._pool.fetch(
            "select id, document from approvals where campaign = $1 and ($2::text is null or document->>'status' = $2)"
            " and ($3::text is null or id < $3) order by id desc limit $4",
            campaign, status, cursor, _PAGE + 1,
        )  # fmt: skip
        page = {"items": [_shown_to(caller, json.loads(row["document"])) for row in rows[:_PAGE]]}
        return page if len(rows) <= _PAGE else {**page, "next": rows[_PAGE - 1]["id"]}

    async def get(self, approval: str, caller: Caller) -> dict[str, Any]:
        """The approval, with the reasons for whoever is a person (P10); the one 404 for strangers."""
        row = await self._pool.fetchrow("select campaign, document from approvals where id = $1", approval)
        if row is None:
            raise not_found()
        await self._campaigns.require(row["campaign"], caller)
        return _shown_to(caller, json.loads(row["document"]))

    async def decide(
        self, approval: str, caller: Caller, decision: ApprovalDecision, key: Idempotency | None = None
    ) -> dict[str, Any]:
        """A person's decision. Approved, the recorder forwards the call by itself; denied, the entry ends (P6).

        *key* then stands for the approval. Raises 404 for strangers, `human-required`, 403 without authority (logged), 422
        `no-passkeys` for an assertion, 409 when it was decided or has expired.
        """
        row = await self._pool.fetchrow("select campaign, entry from approvals where id = $1", approval)
        if row is None:
            raise not_found()
        role = await self._campaigns.require(row["campaign"], caller)
        if not caller.is_human:
            await self._campaigns.security.write(row["campaign"], caller, "decide an approval", row["entry"])
            raise human_required("decide an approval")
        stored = await self._stored(row["entry"])
        entry = stored.entry
        authority = authority_over(caller.sub, role, entry["principal"], entry["undo"].get("undoAuthority"))
        if authority is None:
            raise await self._campaigns.security.refuse(row["campaign"], caller, "decide this approval", stored.id)
        if decision.assertion is not None:
            raise _no_passkeys()
        told = {
            "approval": approval,
            "entry": stored.id,
            "decision": decision.decision,
            "by": {"sub": caller.sub, "kind": "human", "authority": authority},
            "reason": decision.reason,
            "category": decision.category,
        }
        changed = {"decidedBy": caller.sub, "authenticatedBy": "token"}
        if decision.decision == "approve":
            document = await self._end(stored, told, "approved", changed, None, key=standing_for(key, approval))
            self.wake()
        else:
            document = await self._end(stored, told, "denied", changed, "deny", key=standing_for(key, approval))
        return public_view(document)

    async def expire(self) -> int:
        """Ends the approvals that nobody answered in time; how many."""
        rows = await self._pool.fetch(
            "select id, entry from approvals where status = 'pending' and expires_at <= now() limit 100"
        )
        for row in rows:
            await self.close(row["id"], row["entry"], "nobody answered in time", only_pending=True)
        return len(rows)

    async def close(self, approval: str, entry: str, reason: str, *, only_pending: bool = False) -> None:
        """Ends the waiting without forwarding: time ran out, or things are not as they were when it was asked (S13)."""
        stored = await self._stored(entry)
        if stored.status != "awaiting_approval":
            await self._pool.execute("update approvals set status = 'forwarded' where id = $1", approval)
            return
        told = {
            "approval": approval,
            "entry": entry,
            "decision": "expire",
            "by": {"sub": "recorder", "kind": "system"},
            "reason": reason,
        }
        try:
            await self._end(stored, told, "expired", {}, "expire", reason, only_pending=only_pending)
        except Problem as problem:  # somebody decided in the same moment
            log.info("an approval did not expire", approval=approval, entry=entry, why=problem.detail)

    async def due(self, who: str, lease_seconds: float) -> Due | None:
        """The longest approved call that nobody forwards yet, leased to *who*; None when there is none."""
        row = await self._pool.fetchrow(
            "update approvals set claimed_by = $1, claimed_until = now() + make_interval(secs => $2) where id = ("
            " select id from approvals where status = 'approved' and (claimed_until is null or claimed_until < now())"
            " order by decided_at for update skip locked limit 1) returning id, entry, document",
            who, lease_seconds,
        )  # fmt: skip
        return None if row is None else Due(row["id"], row["entry"], json.loads(row["document"]))

    async def forwarded(self, approval: str) -> None:
        """The call is in the journal as forwarded, or further: nobody takes it again."""
        await self._pool.execute("update approvals set status = 'forwarded' where id = $1", approval)

    async def put_back(self, approval: str, seconds: float) -> None:
        """Lets any replica try again after *seconds*."""
        await self._pool.execute(
            "update approvals set claimed_until = now() + make_interval(secs => $2) where id = $1", approval, seconds
        )

    async def _end(
        self,
        stored: StoredEntry,
        told: dict[str, Any],
        status: str,
        changed: dict[str, Any],
        step: Step | None,
        detail: str = "",
        *,
        only_pending: bool = True,
        key: Idempotency | None = None,
    ) -> dict[str, Any]:
        decided = NewRecord(
            stream=stored.run,
            campaign=stored.campaign,
            id=new_id("rec"),
            type="approval.decided",
            body=json.dumps(told),
            published=True,
        )
        records, entries = [decided], []
        if step is not None:
            stands = stands_of(stored)
            record, change = step_of(stands, {**stands.body, "detail": detail or told["reason"]}, step)
            records, entries = [record, decided], [change]
        async with self._journal.transaction() as tx:
            await tx.append(Unit(records=records, entries=entries, idempotency=key))
            document = await tx.fetchval(
                "update approvals set status = $2::text, decided_at = now(), document = document || $3::jsonb"
                " where entry = $1 and (status = 'pending' or not $4)"
                " and (status <> 'pending' or expires_at > now() or $2 = 'expired') returning document",
                stored.id, status, json.dumps({**changed, "status": status}).decode(), only_pending,
            )  # fmt: skip
            if document is None:
                raise Problem(
                    409, "already-decided", "The approval was decided before, or has expired. Nothing was changed."
                )
        return dict(json.loads(document))

    async def _shown(self, call: Call, snapshot: Snapshot | None) -> tuple[Any, Snapshot | None]:
        """The dry run and the record as the approver sees them; what cannot be shown does not stop the asking."""
        operation = call.operation
        named = call.resources.changes is not None or operation.manifest is not None
        if operation.can_preview or (snapshot is None and named and operation.can_observe):
            try:
                port = await self._servers.port(call.campaign, operation.server, call.run.campaign_version)
            except Problem as problem:
                return {"failure": problem.detail}, snapshot
            if snapshot is None and named and operation.can_observe:
                snapshot = await before_asking(call, port, OBSERVE_SECONDS)
            if operation.can_preview:
                try:
                    shown = await port.preview(operation.name, call.request.arguments, deadline=OBSERVE_SECONDS)
                except ToolPortError as error:
                    return {"failure": str(error)}, snapshot
                return {"effects": [effect.wire() for effect in shown.effects]}, snapshot
        return {"arguments": call.request.arguments}, snapshot

    async def _whom(self, call: Call, undo_authority: str | None) -> Sequence[str]:
        rows = await self._pool.fetch("select sub, role from members where campaign = $1 order by sub", call.campaign)
        return [
            row["sub"]
            for row in rows
            if authority_over(row["sub"], row["role"], call.principal, undo_authority) is not None
        ]

    async def _stored(self, entry: str) -> StoredEntry:
        stored = await self._reader.entry(entry)
        if stored is None:
            raise not_found()
        return stored


def _no_passkeys() -> Problem:
    """The refusal of a passkey's assertion: one that is taken and not checked would be trusted (P6)."""
    return Problem(
        422,
        "no-passkeys",
        "This release does not check passkeys, so it takes no assertion. Nothing was changed; leave it out: the decision is"
        " recorded as authenticated by your token.",
    )


def _shown_to(caller: Caller, document: dict[str, Any]) -> dict[str, Any]:
    return public_view(document) if caller.is_human else for_callers(document)


def _asking(body: Body, approval: str, call: Call, preview: Any) -> Body:
    internal = {**body["internal"], "doubt": call.doubt}
    if isinstance(preview, dict) and preview.get("effects") and not call.operation.declaration.secret:
        internal["foretold"] = preview["effects"]
    return {**body, "entry": {**body["entry"], "approval": approval}, "internal": internal}
