"""Taking in a decision about a plan (G5, G6, G7): what is checked in the commit that makes it a fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from recorder.campaigns import Campaigns
from recorder.journal import Journal, JournalReader, NewRecord, Record, Refused, StoredEntry, Unit
from recorder.reversing.observing import Observer
from recorder.reversing.queue import ReversalQueue
from recorder.reversing.remaps import current_names
from recorder.reversing.reversal import Reversal, decided_of
from recorder.reversing.runner import Runner
from recorder.reversing.work import Decided, effects_of, resources_of
from takeback import json
from takeback.auth import Caller
from takeback.authority import authority_over
from takeback.errors import Problem, human_required, invalid, not_found
from takeback.messages.entry import Entry
from takeback.messages.plan import Plan, PlanDecision, Step

_MAY_STAND: Final = frozenset({"committed", "reverting", "reverted"})
"""An entry in any other status was something else when the plan was made."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where a record stands: its stream and seq."""

    stream: str
    seq: int


class Deciding:
    """Appends ``plan.decided``, and has *runner* run what was approved."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        journal: Journal,
        reader: JournalReader,
        campaigns: Campaigns,
        observer: Observer,
        queue: ReversalQueue,
        runner: Runner,
    ) -> None:
        self._pool = pool
        self._journal = journal
        self._reader = reader
        self._campaigns = campaigns
        self._observer = observer
        self._queue = queue
        self._runner = runner

    async def decide(
        self,
        record_id: str,
        campaign: str,
        by: Caller,
        plan_id: str,
        decision: PlanDecision,
        request: str | None = None,
    ) -> Recorded:
        """The decision as a fact, and for an approval the reversal in the queue, in one commit.

        Raises `Problem`: 403 human-required or not-authorised (with a security log entry), 404, 409 digest-mismatch,
        plan-stale (the world moved: nothing was appended), already-decided (another decision came first). The same decision
        again is answered like the first. *request* names the person's own, where it may come again.
        """
        if not by.is_human:
            await self._campaigns.security.write(campaign, by, "decide a plan")
            raise human_required("decide a plan")
        record = await self._proposed(campaign, plan_id)
        proposed = json.loads(record.body)
        body = {"plan": plan_id, "campaign": campaign, **decision.wire()}
        known = await self._decided_before(plan_id, by, body)
        if known is not None:
            return known
        plan = Plan.model_validate(proposed["plan"])
        if decision.digest != plan.digest:
            raise Problem(
                409,
                "digest-mismatch",
                "The digest is not this plan's. Nothing was changed; read the plan and decide again.",
            )
        _check_names(plan, decision)
        decided = decided_of(proposed, body, by.sub)
        stored = await self._entries(campaign, plan)
        entries = _public(stored)
        judged = [step.entry for step in plan.steps if step.entry not in decided.leave_out] or plan.targets
        authorities = await self._authorities(campaign, by, judged, entries)
        resources: list[str] = []
        if decision.decision == "approve":
            entries = await self._current(decided, campaign, stored, entries)
            resources = resources_of(plan, entries, decided.leave_out)
        return await self._append(record_id, campaign, by, decided, body, authorities, resources, request)

    async def _append(
        self,
        record_id: str,
        campaign: str,
        by: Caller,
        decided: Decided,
        body: dict[str, Any],
        authorities: Mapping[str, str],
        resources: Sequence[str],
        request: str | None,
    ) -> Recorded:
        authority = ", ".join(sorted(set(authorities.values()))) or None
        actor = {"sub": by.sub, "kind": by.kind, "authority": authority}
        unit = Unit(
            records=[
                NewRecord(
                    stream=campaign,
                    campaign=campaign,
                    kind="campaign",
                    id=record_id,
                    type="plan.decided",
                    body=json.dumps({**body, "by": actor, **({"request": request} if request else {})}),
                    published=True,
                )
            ],
            once=record_id,
        )
        approved = body["decision"] == "approve"
        reversal: Reversal | None = None
        try:
            async with self._journal.transaction() as tx:
                appended = await tx.append(unit)
                seq = appended.records[0].seq
                row = {
                    "body": body,
                    "by": actor,
                    "authorities": dict(authorities),
                    "resources": list(resources),
                    "seq": seq,
                }
                if not await self._queue.put(tx, body["plan"], campaign, "queued" if approved else "completed", row):
                    raise _Overtaken
                if approved and self._runner.has_room:
                    reversal = await self._queue.take_at_once(tx, campaign, decided, row)
        except _Overtaken:
            known = await self._decided_before(body["plan"], by, body)
            assert known is not None
            return known
        except Refused as refused:
            known = await self._decided_before(body["plan"], by, body) if refused.reason == "duplicate-record" else None
            if known is None:
                raise
            return known
        if reversal is not None:
            self._runner.begin(reversal)
        elif approved:
            self._runner.wake()
        return Recorded(campaign, seq)

    async def _proposed(self, campaign: str, plan_id: str) -> Record:
        record = await self._reader.record(plan_id)
        if record is None or record.campaign != campaign or record.type != "plan.proposed":
            raise not_found()
        return record

    async def _decided_before(self, plan_id: str, by: Caller, body: Mapping[str, Any]) -> Recorded | None:
        row = await self._pool.fetchrow("select campaign, decision from reversals where id = $1", plan_id)
        if row is None:
            return None
        kept = json.loads(row["decision"])
        if kept["body"] == body and kept["by"]["sub"] == by.sub:
            return Recorded(row["campaign"], kept["seq"])
        raise Problem(
            409,
            "already-decided",
            f"{kept['by']['sub']} decided this plan otherwise before ({kept['body']['decision']}). Nothing was changed.",
        )

    async def _entries(self, campaign: str, plan: Plan) -> dict[str, StoredEntry]:
        found: dict[str, StoredEntry] = {}
        for name in dict.fromkeys([*(step.entry for step in plan.steps), *plan.targets]):
            stored = await self._reader.entry(name)
            if stored is None or stored.campaign != campaign:
                raise not_found()
            found[name] = stored
        return found

    async def _authorities(
        self, campaign: str, by: Caller, judged: Sequence[str], entries: Mapping[str, Entry]
    ) -> dict[str, str]:
        """In what capacity *by* decides about each of *judged*: the steps that are not left out, else the targets."""
        role = await self._campaigns.role(campaign, by.sub)
        if role is None:
            raise not_found()
        authorities: dict[str, str] = {}
        for name in judged:
            entry = entries[name]
            authority = authority_over(by.sub, role, entry.principal, entry.undo.undo_authority)
            if authority is None:
                raise await self._campaigns.security.refuse(campaign, by, "take this back", name)
            authorities[name] = authority
        return authorities

    async def _current(
        self, decided: Decided, campaign: str, stored: dict[str, StoredEntry], entries: dict[str, Entry]
    ) -> dict[str, Entry]:
        """The plan's entries as they are now; raises 409 plan-stale where a record is no longer as it was (G6).

        Another reversal may take one of them up between the look at the entries and the look at the records. Its claim is
        written before its undo is sent, so a second look at the entries tells of it (G9).
        """
        while True:
            try:
                await self._check_current(decided, campaign, entries)
                return entries
            except Problem as stale:
                again = await self._entries(campaign, decided.plan)
                if stale.slug != "plan-stale" or all(again[id_].view_seq == stored[id_].view_seq for id_ in stored):
                    raise
                stored, entries = again, _public(again)

    async def _check_current(self, decided: Decided, campaign: str, entries: Mapping[str, Entry]) -> None:
        """Raises 409 plan-stale where a record is no longer as it was when the plan was made (G6)."""
        steps = [step for step in decided.plan.steps if step.entry not in decided.leave_out]
        moved = [step.entry for step in steps if entries[step.entry].status not in _MAY_STAND]
        if moved:
            raise _stale(f"{moved[0]} is {entries[moved[0]].status} by now")
        records = [record for step in steps for record in _seen_then(decided, step, entries[step.entry])]
        names = await current_names(self._pool, campaign, [resource for _, resource, _ in records])
        ours = await self._left_by_reversals(decided.plan, entries)
        open_ones = [
            (server, names.get(resource, resource), version)
            for server, resource, version in records
            if names.get(resource, resource) not in ours.unsettled
        ]
        by_server: dict[str, dict[str, None]] = {}
        for server, resource, _ in open_ones:
            by_server.setdefault(server, {})[resource] = None
        seen = {
            (server, resource): look
            for server, wanted in by_server.items()
            for resource, look in (await self._observer.see_all(campaign, server, list(wanted))).items()
        }
        for server, resource, version in open_ones:
            look = seen[server, resource]
            if look.observation is None or look.error is not None:
                continue  # the step itself looks again, and says what it could not see
            now = look.observation.version
            if now != version and now not in ours.versions.get(resource, ()):
                raise _stale(f"{resource} stood at version {version}, it stands at {now} by now")

    async def _left_by_reversals(self, plan: Plan, entries: Mapping[str, Entry]) -> _Ours:
        """What other reversals did with this plan's own entries meanwhile: that makes no plan stale (G9)."""
        ours = _Ours({}, set())
        for step in plan.steps:
            entry = entries[step.entry]
            if entry.status == "reverting":
                ours.unsettled.update(effect.resource for effect in effects_of(entry) if effect.resource)
            elif entry.status == "reverted" and entry.reverted_by is not None:
                stored = await self._reader.entry(entry.reverted_by)
                assert stored is not None
                for effect in effects_of(Entry.model_validate(stored.public)):
                    assert effect.resource is not None
                    ours.versions.setdefault(effect.resource, set()).add(effect.version)
        return ours


def _public(stored: Mapping[str, StoredEntry]) -> dict[str, Entry]:
    return {id_: Entry.model_validate(found.public) for id_, found in stored.items()}


@dataclass(frozen=True, slots=True)
class _Ours:
    versions: dict[str, set[str | None]]
    unsettled: set[str]


class _Overtaken(Exception):
    """Another decision on the plan was written in the same moment."""


def _seen_then(decided: Decided, step: Step, entry: Entry) -> list[tuple[str, str, str | None]]:
    """The records of *step* with the versions that the plan saw; those that it could not see are left away."""
    if entry.status == "reverted":
        return []
    found: list[tuple[str, str, str | None]] = []
    for index, effect in enumerate(effects_of(entry)):
        assert effect.resource is not None
        if (entry.id, effect.resource) in decided.observed:
            found.append((entry.server, effect.resource, decided.observed[entry.id, effect.resource]))
        elif index == 0 and step.observed_version is not None:
            found.append((entry.server, effect.resource, step.observed_version))
    return found


def _check_names(plan: Plan, decision: PlanDecision) -> None:
    steps = {step.entry for step in plan.steps}
    unknown = [name for name in [*decision.leave_out, *decision.override, *decision.fields] if name not in steps]
    if unknown:
        raise invalid(f"{', '.join(unknown[:5])}: not among the plan's steps.")


def _stale(what: str) -> Problem:
    return Problem(409, "plan-stale", f"The plan is stale: {what}. Nothing was changed; look at a fresh plan.")
