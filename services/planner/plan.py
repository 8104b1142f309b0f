"""A Reversal Plan from what is known: every target and dependent in exactly one section (G4, G11). Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from planner.conflicts import Observations, Outlook, outlooks
from planner.consequences import consequences
from planner.fact import Fact
from planner.graph import Closure
from planner.readers import blind_spots, read_since
from takeback import json
from takeback.messages.campaign import Memory
from takeback.messages.plan import (
    Because,
    NotReversible,
    Plan,
    ReadSince,
    SideEffect,
    Step,
    Suggestion,
    UnresolvedEntry,
)
from takeback.standing import standing


@dataclass(frozen=True, slots=True)
class World:
    """What a plan is made against: the database's time, the records as seen, and the campaign's other entries."""

    now: datetime
    observations: Observations = field(default_factory=dict)
    related: Sequence[Fact] = ()
    active_agents: Mapping[str, Memory] = field(default_factory=dict)


def steps_of(closure: Closure, now: datetime) -> list[Fact]:
    """The members of *closure* that can be taken back at *now*, in order: those whose records a plan observes."""
    return [fact for fact in closure.members if _sorted(fact, now) is None]


def assemble(plan: str, campaign: str, closure: Closure, world: World) -> Plan:
    """The Reversal Plan named *plan*: what taking back the closure's targets means in *world*."""
    sections = {fact.id: _sorted(fact, world.now) for fact in closure.members}
    steps = [fact for fact in closure.members if sections[fact.id] is None]
    runnable = {fact.id for fact in steps}
    because = {fact.id: closure.because(fact.id, runnable) for fact in steps}
    ahead = outlooks(steps, world.observations, [*closure.members, *world.related])
    not_reversible = [found for found in sections.values() if isinstance(found, NotReversible)]
    unresolved = [found for found in sections.values() if isinstance(found, UnresolvedEntry)]
    readers = read_since(closure.members, world.related)
    made = Plan(
        id=plan,
        campaign=campaign,
        digest="",
        status="proposed",
        as_of=world.now,
        targets=list(closure.targets),
        steps=[_step(fact, ahead[fact.id], because[fact.id], world.now) for fact in steps],
        consequences=consequences(steps, ahead, because, closure.members, unresolved, world.related),
        not_reversible=not_reversible,
        unresolved=unresolved,
        read_since=readers,
        read_since_incomplete=blind_spots(world.active_agents),
        side_effects=_side_effects(steps),
        suggestions=[*_remedies(closure, not_reversible), *_corrections(readers, world.related)],
    )
    return made.model_copy(update={"digest": digest_of(made)})


def digest_of(plan: Plan) -> str:
    """What an approval binds to (G6): targets, steps with their versions, what is not reversible, what is unresolved.

    Sections that only inform, and the time it was made, do not count: a new reader alone makes no plan stale.
    """
    binding = plan.model_dump(
        mode="json", by_alias=True, include={"campaign", "targets", "steps", "not_reversible", "unresolved"}
    )
    return "sha256:" + hashlib.sha256(json.dumps(binding)).hexdigest()


def moved_past(plan: Plan, fresh: Plan, gone: Set[str]) -> bool:
    """Whether the world moved past *plan*, of which *fresh* is what it means now (G6).

    *gone* are its entries that another plan takes back, or took back, meanwhile: of these it only becomes true sooner that
    they are reverted (G9), and whether the records fit is asked again of the records themselves.
    """
    if fresh.digest == plan.digest:
        return False
    return not gone or not _members(fresh) <= _members(plan)


def needs_choice(plan: Plan, interaction: Iterable[str]) -> list[str]:
    """Why a person must look at *plan* before it may run in one call; *interaction* are its entries. Empty: nothing does."""
    inside = set(interaction)
    why = []
    if any(step.entry not in inside for step in plan.steps):
        why.append("later turns built on this one and would be taken back too")
    if any(step.conflict is not None for step in plan.steps):
        why.append("a record was changed since")
    if any(step.needs_person is not None for step in plan.steps):
        why.append("a step runs only when a person picks it")
    if any(item.reason != "failed" for item in plan.not_reversible):
        why.append("not everything can be taken back")
    if plan.unresolved:
        why.append("something is unresolved")
    return why


def _members(plan: Plan) -> set[str]:
    return {item.entry for section in (plan.steps, plan.not_reversible, plan.unresolved) for item in section}


def _sorted(fact: Fact, now: datetime) -> NotReversible | UnresolvedEntry | None:
    """The section in which *fact* stands when it is no step; None for a step."""
    stands = standing(fact.entry, now)
    if stands.reason is not None:
        return NotReversible(entry=fact.id, reason=stands.reason, detail=stands.detail)
    if stands.place == "unresolved":
        return UnresolvedEntry(entry=fact.id, reason=stands.detail)
    return None


def _step(fact: Fact, outlook: Outlook, because: Sequence[Because], now: datetime) -> Step:
    undo = fact.entry.undo
    return Step(
        entry=fact.id,
        label=fact.entry.label,
        server=fact.entry.server,
        operation=fact.entry.operation,
        resource=outlook.resource,
        undo_by=undo.undo_by,
        if_version=outlook.if_version,
        observed_version=outlook.observed_version,
        expects=outlook.expects,
        conflict=outlook.conflict,
        needs_person=standing(fact.entry, now).needs_person,
        via=undo.via,
        because=list(because),
    )


def _side_effects(steps: Sequence[Fact]) -> list[SideEffect]:
    return [
        SideEffect(entry=fact.id, text=text)
        for fact in steps
        if fact.entry.status != "reverted"
        for text in fact.entry.undo.side_effects
    ]


def _remedies(closure: Closure, not_reversible: Sequence[NotReversible]) -> list[Suggestion]:
    names = {fact.id: fact.name for fact in closure.members}
    return [
        Suggestion(
            kind="remedy",
            entry=item.entry,
            text=f"{names[item.entry]} stays. What it caused can be made good by a new call that names it as remedied.",
        )
        for item in not_reversible
        if item.reason != "failed"
    ]


def _corrections(readers: Sequence[ReadSince], related: Iterable[Fact]) -> list[Suggestion]:
    known = {fact.id: fact for fact in related}
    return [
        Suggestion(
            kind="correction",
            entry=reader.entry,
            text=f"{known[reader.entry].entry.agent} used {reader.resource} in {known[reader.entry].name} of run {reader.run}: "
            "write the value that holds after this reversal where it was carried to.",
        )
        for reader in readers
    ]
