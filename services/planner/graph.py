"""Which entries go when some are taken back, why, and in which order (G3, S4). Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from planner.fact import Fact, in_order
from planner.links import Edge, stronger
from takeback.messages.plan import Because, LinkSource

Dependents = dict[str, dict[str, LinkSource]]
"""For each entry those that build on it directly, with the best source."""

TARGET = "target"
"""The source that a target names for itself."""


@dataclass(frozen=True, slots=True)
class Closure:
    """The targets and all that builds on them. *members* in a safe order: what builds on an entry stands before it.

    *grounds* has for each member the other members that it builds on, directly or through reads, with the best source.
    """

    targets: Sequence[str]
    members: Sequence[Fact]
    grounds: Mapping[str, Mapping[str, LinkSource]]

    def because(self, member: str, steps: Set[str]) -> list[Because]:
        """Why *member* is here: itself where it is a target, then what it builds on, nearest first.

        A default link is not told where a nearer one of *steps* that it builds on has one to the same entry: of a run
        without declarations each step names the one before it, and nothing is told twice.
        """
        told = [Because(entry=member, source=TARGET)] if member in self.targets else []
        covered: set[str] = set()
        for entry, source in self.grounds[member].items():
            if source != "default" or entry not in covered:
                told.append(Because(entry=entry, source=source))
                if entry in steps:
                    covered.update(self.grounds[entry])
        return told


def closure(facts: Iterable[Fact], edges: Iterable[Edge], targets: Iterable[str]) -> Closure:
    """Everything that has to go for *targets* to go.

    Reads pass dependence on and are no members. A reverted entry and its reversal cancel out: only as targets are they
    members, and a reverted one draws in nothing.
    """
    known = {fact.id: fact for fact in facts}
    wanted = [target for target in dict.fromkeys(targets) if not known[target].is_read]
    dependents: Dependents = defaultdict(dict)
    for edge in edges:
        held = dependents[edge.depends_on]
        held[edge.entry] = stronger(held[edge.entry], edge.source) if edge.entry in held else edge.source
    reached = _reach(known, dependents, wanted)
    members = safe_order(known[entry] for entry in reached if not known[entry].is_read)
    return Closure(sorted(wanted), members, _grounds(known, dependents, members))


def safe_order(facts: Iterable[Fact]) -> list[Fact]:
    """*facts* of any runs, later ones first; within a run strictly so, for a link only ever leads to an earlier entry."""
    runs: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        runs[fact.entry.run].append(fact)
    latest_first = [in_order(run)[::-1] for run in runs.values()]
    # Merged by the head with the latest time: clocks of two runs may tie, the order inside each is kept.
    heads = [(-_instant(run[0]), run[0].id, index) for index, run in enumerate(latest_first)]
    heapq.heapify(heads)
    taken = [0] * len(latest_first)
    order: list[Fact] = []
    while heads:
        _, _, index = heapq.heappop(heads)
        run = latest_first[index]
        order.append(run[taken[index]])
        taken[index] += 1
        if taken[index] < len(run):
            following = run[taken[index]]
            heapq.heappush(heads, (-_instant(following), following.id, index))
    return order


def _reach(known: Mapping[str, Fact], dependents: Dependents, targets: Sequence[str]) -> list[str]:
    reached = dict.fromkeys(targets)
    pending = [target for target in targets if known[target].entry.status != "reverted"]
    while pending:
        for entry in dependents.get(pending.pop(), ()):
            if entry not in reached and _may_be_drawn_in(known[entry]):
                reached[entry] = None
                pending.append(entry)
    return list(reached)


def _may_be_drawn_in(fact: Fact) -> bool:
    return fact.happened and not fact.is_reversal and fact.entry.status != "reverted"


def _grounds(
    known: Mapping[str, Fact], dependents: Dependents, members: Sequence[Fact]
) -> dict[str, dict[str, LinkSource]]:
    """For each member the members that it builds on; the later ones first, for *members* stand so."""
    grounds: dict[str, dict[str, LinkSource]] = {member.id: {} for member in members}
    for member in members:
        if member.entry.status == "reverted":
            continue
        seen: set[str] = set()
        pending = deque([member.id])
        while pending:
            for entry, source in dependents.get(pending.popleft(), {}).items():
                if entry in seen:
                    continue
                seen.add(entry)
                if entry in grounds:
                    grounds[entry][member.id] = source
                elif known[entry].is_read:
                    pending.append(entry)
    return grounds


def _instant(fact: Fact) -> float:
    return fact.at.timestamp()
