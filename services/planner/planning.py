"""Making Reversal Plans: what was asked for, what builds on it, what the records hold now (G3, G4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from planner.conflicts import Observed
from planner.fact import Fact, with_unsettled
from planner.folding import PlanState, fold
from planner.graph import Closure, closure
from planner.links import Edge, edges_of
from planner.plan import World, assemble, steps_of
from planner.store import Store
from takeback.attempt import Attempt, key_conflict
from takeback.auth import Caller
from takeback.errors import invalid, not_found
from takeback.ids import new_id
from takeback.inbox import Inbox
from takeback.messages.base import Request
from takeback.messages.campaign import Role
from takeback.messages.entry import Entry
from takeback.messages.plan import Plan, PlanRequest
from takeback.metrics import PLANS
from takeback.rpc import Rpc
from takeback.subjects import RPC_APPEND, RPC_OBSERVE

_OBSERVE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Now:
    """What was acknowledged in a campaign up to now, and what is under way."""

    at: datetime
    unsettled: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan that is not proposed yet, with what was observed for it."""

    plan: Plan
    observed: Sequence[dict[str, Any]]


class Planning:
    """Reads the projection, asks the recorder to observe, and proposes what follows."""

    def __init__(self, store: Store, inbox: Inbox, rpc: Rpc) -> None:
        self.store = store
        self._inbox = inbox
        self._rpc = rpc

    async def now(self, campaign: str) -> Now:
        """Waits until everything acknowledged in *campaign* is known. Raises `Problem` 503 ``behind``, or 404."""
        heads = await self._inbox.catch_up(campaign)
        unsettled = [Entry.model_validate(_entry(item)) for item in heads.get("unsettled", ())]
        return Now(datetime.fromisoformat(heads["now"]), unsettled)

    async def propose(
        self, campaign: str, caller: Caller, request: PlanRequest, attempt: Attempt | None = None
    ) -> Plan:
        """A plan for what *request* names, appended to the journal. Raises `Problem` 404 for what is not in *campaign*.

        The same *attempt* again gives the same plan, and 422 with another request.
        """
        now = await self.now(campaign)
        await self.store.require(campaign, caller)
        if (made := await self.made_by(attempt, request)) is not None:
            return made.plan
        targets = await self.targets(campaign, request, now)
        draft = await self.draft(plan_id(attempt), campaign, targets, now)
        await self.append(draft, caller, request=request.model_dump_json())
        await self._inbox.catch_up(campaign)
        made = await self.made_by(attempt, request)  # of two at once, the first to be appended counts
        return draft.plan if made is None else made.plan

    async def made_by(self, attempt: Attempt | None, request: Request) -> PlanState | None:
        """The plan that the same *attempt* has made; raises `Problem` 422 where it was another *request*'s."""
        made = None if attempt is None else await self.state(plan_id(attempt))
        if made is not None and made.request != request.model_dump_json():
            raise key_conflict()
        return made

    async def targets(self, campaign: str, request: PlanRequest, now: Now) -> list[str]:
        """The entries that *request* means: reads change nothing and reversals are named one by one, so both are left out."""
        if request.entries is not None:
            return await self._named(campaign, request.entries, now)
        if request.interaction is not None:
            found = await self.interaction(campaign, request.interaction, now)
        else:
            assert request.run is not None
            found = await self._of_run(campaign, request.run, now)
        targets = [fact.id for fact in found if not fact.is_read and not fact.is_reversal]
        if not targets:
            raise not_found() if not found else invalid("Only reads are in it: there is nothing to take back.")
        return targets

    async def interaction(self, campaign: str, interaction: str, now: Now) -> list[Fact]:
        """All entries of *interaction*, those under way included."""
        known = await self.store.facts_of_interaction(campaign, interaction)
        return with_unsettled(known, [entry for entry in now.unsettled if entry.interaction == interaction])

    async def draft(self, plan: str, campaign: str, targets: Iterable[str], now: Now) -> Draft:
        """The plan that takes *targets* back as the world is now; nothing is appended."""
        reached = await self._closure(campaign, list(targets), now)
        steps = [fact for fact in steps_of(reached, now.at) if fact.entry.status != "reverted"]
        observed, world = await asyncio.gather(self._observe(campaign, steps), self._world(campaign, reached, now))
        seen = {(item["server"], item["resource"]): _observed(item) for item in observed}
        return Draft(assemble(plan, campaign, reached, replace(world, observations=seen)), observed)

    async def append(
        self, draft: Draft, caller: Caller, *, request: str | None = None, supersedes: str | None = None
    ) -> None:
        """Makes *draft* a fact of the journal; the projection holds it after the next catching up."""
        body = {
            "plan": draft.plan.wire(),
            "observed": list(draft.observed),
            "request": request,
            "supersedes": supersedes,
        }
        await self._rpc.request(
            RPC_APPEND,
            {
                "id": f"{draft.plan.id}-proposed",
                "type": "plan.proposed",
                "campaign": draft.plan.campaign,
                "by": {"sub": caller.sub, "kind": caller.kind},
                "body": body,
            },
        )
        PLANS.labels("proposed").inc()

    async def state(self, plan: str) -> PlanState | None:
        """Where *plan* stands, None when it is not known."""
        facts, superseded = await self.store.plan_facts(plan)
        return fold(facts, superseded=superseded)

    async def seen(self, plan: str, caller: Caller) -> PlanState:
        """The newest state of *plan* for a member of its campaign; the one 404 for everybody else."""
        state, _, _ = await self.seen_at(plan, caller)
        return state

    async def seen_at(self, plan: str, caller: Caller) -> tuple[PlanState, Now, Role | None]:
        """The same, with what else was known then, and the caller's role."""
        campaign = await self.store.campaign_of_plan(plan)
        if campaign is None:
            raise not_found()
        now = await self.now(campaign)
        role = await self.store.require(campaign, caller)
        state = await self.state(plan)
        if state is None:
            raise not_found()
        return state, now, role

    async def graph_seen(
        self, run: str, caller: Caller, skip: int = 0, limit: int | None = None
    ) -> tuple[list[Fact], list[Edge]]:
        """The graph of *run* as of now for a member of its campaign; the one 404 for everybody else.

        With a *limit* only that many of its concluded entries, without the first *skip*, and the links between those.
        """
        campaign = await self.store.campaign_of_run(run)
        if campaign is None:
            await self._inbox.catch_up_stream(run)
            campaign = await self.store.campaign_of_run(run)
        if campaign is None:
            raise not_found()
        now = await self.now(campaign)
        await self.store.require(campaign, caller)
        if limit is None:
            return await self.graph(campaign, run, now)
        facts = await self.store.facts_within_run(campaign, run, skip, limit)
        return facts, edges_of(facts, await self.store.confirmations(fact.id for fact in facts))

    async def graph(
        self, campaign: str, run: str, now: Now | None = None, *, from_seq: int = 0
    ) -> tuple[list[Fact], list[Edge]]:
        """The entries of *run* from *from_seq* on, and the links between them."""
        facts = await self.store.facts_of_run(campaign, run, from_seq)
        if now is not None:
            facts = with_unsettled(facts, [entry for entry in now.unsettled if entry.run == run])
        return facts, edges_of(facts, await self.store.confirmations(fact.id for fact in facts))

    async def _named(self, campaign: str, entries: Sequence[str], now: Now) -> list[str]:
        known = await self.store.facts(campaign, entries)
        named = {fact.id: fact for fact in with_unsettled(known, [e for e in now.unsettled if e.id in entries])}
        if any(entry not in named for entry in entries):
            raise not_found()
        targets = [entry for entry in dict.fromkeys(entries) if not named[entry].is_read]
        if not targets:
            raise invalid("Only reads are named: there is nothing to take back.")
        return targets

    async def _of_run(self, campaign: str, run: str, now: Now) -> list[Fact]:
        if await self.store.campaign_of_run(run) != campaign:
            raise not_found()
        known = await self.store.facts_of_run(campaign, run)
        return with_unsettled(known, [entry for entry in now.unsettled if entry.run == run])

    async def _closure(self, campaign: str, targets: Sequence[str], now: Now) -> Closure:
        named = with_unsettled(
            await self.store.facts(campaign, targets), [entry for entry in now.unsettled if entry.id in targets]
        )
        facts: list[Fact] = []
        edges: list[Edge] = []
        for run in sorted({fact.entry.run for fact in named}):
            first = min(fact.seq for fact in named if fact.entry.run == run)
            # Links lead to earlier entries: what came before the first target has no part in it.
            run_facts, run_edges = await self.graph(campaign, run, now, from_seq=first)
            facts += run_facts
            edges += run_edges
        return closure(facts, edges, targets)

    async def _observe(self, campaign: str, steps: Sequence[Fact]) -> list[dict[str, Any]]:
        """What the records of *steps* hold now: each asked for once, told for every step that changed it."""
        wanted: dict[tuple[str, str], list[str]] = {}
        for step in steps:
            for resource in step.changed:
                wanted.setdefault((step.entry.server, resource), []).append(step.id)
        if not wanted:
            return []
        items = [
            {"entry": entries[0], "resource": resource, "server": server}
            for (server, resource), entries in wanted.items()
        ]
        answer = await self._rpc.request(RPC_OBSERVE, {"campaign": campaign, "items": items}, _OBSERVE_SECONDS)
        seen = {(item["entry"], item["resource"]): item for item in answer["observations"]}
        told = []
        for (server, resource), entries in wanted.items():
            item = seen.get((entries[0], resource), {"resource": resource, "error": "the recorder did not say"})
            told += [{**item, "entry": entry, "server": server} for entry in entries]
        return told

    async def _world(self, campaign: str, reached: Closure, now: Now) -> World:
        """What a plan is made against beside the records themselves."""
        live = [fact for fact in reached.members if fact.entry.status != "reverted"]
        since = min((fact.at for fact in live), default=now.at)
        resources = sorted({resource for fact in reached.members for resource in fact.changed})
        values = sorted({value for fact in live for value in fact.matchable.results})
        return World(
            now=now.at,
            related=await self.store.related(campaign, resources, values, since),
            active_agents=await self.store.active_agents(campaign, since) if live else {},
        )


def plan_id(attempt: Attempt | None) -> str:
    """A fresh plan's id; for the same *attempt* always the same one."""
    return new_id("pln") if attempt is None else f"pln_{attempt.name[:26]}"


def _entry(item: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = item.get("entry", item) if isinstance(item.get("entry"), dict) else item
    return entry


def _observed(item: dict[str, Any]) -> Observed:
    return Observed(
        resource=item["resource"],
        exists=bool(item.get("exists")),
        version=item.get("version"),
        fields=item.get("fields") or {},
        error=item.get("error"),
    )
