"""Which entries go when some are taken back, why, and in which order (G3, S4). Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.fact import Fact, in_order
from planner.links import strongest
from takeback.messages.plan import Because, Link

TARGET = "target"
"""The source that a target names for itself."""


@dataclass(frozen=True, slots=True)
class Closure:
    """The targets and all that builds on them. *members* in a safe order: what builds on an entry stands before it."""

    targets: Sequence[str]
    members: Sequence[Fact]
    because: Mapping[str, Sequence[Because]]


def closure(facts: Iterable[Fact], links: Sequence[Link], targets: Iterable[str]) -> Closure:
    """Everything that has to go for *targets* to go.

    Reads pass dependence on and are no members. A reverted entry and its reversal cancel out: only as targets are they
    members, and a reverted one draws in nothing.
    """
    known = {fact.id: fact for fact in facts}
    wanted = [target for target in dict.fromkeys(targets) if not known[target].is_read]
    dependents: dict[str, list[Link]] = defaultdict(list)
    for link in strongest(links):
        dependents[link.depends_on].append(link)
    reached = _reach(known, dependents, wanted)
    members = safe_order(known[entry] for entry in reached if not known[entry].is_read)
    because = _because(known, dependents, {fact.id for fact in members})
    for target in wanted:
        because[target].insert(0, Because(entry=target, source=TARGET))
    return Closure(sorted(wanted), members, {fact.id: because[fact.id] for fact in members})


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


def _reach(known: Mapping[str, Fact], dependents: Mapping[str, Sequence[Link]], targets: Sequence[str]) -> list[str]:
    reached = dict.fromkeys(targets)
    pending = [target for target in targets if known[target].entry.status != "reverted"]
    while pending:
        for link in dependents.get(pending.pop(), ()):
            if link.entry not in reached and _may_be_drawn_in(known[link.entry]):
                reached[link.entry] = None
                pending.append(link.entry)
    return list(reached)


def _may_be_drawn_in(fact: Fact) -> bool:
    return fact.happened and not fact.is_reversal and fact.entry.status != "reverted"


def _because(
    known: Mapping[str, Fact], dependents: Mapping[str, Sequence[Link]], members: set[str]
) -> dict[str, list[Because]]:
    """For each member the other members that it builds on, through reads or directly."""
    because: dict[str, list[Because]] = {member: [] for member in members}
    for member in in_order(known[entry] for entry in members):
        if member.entry.status == "reverted":
            continue
        seen: set[str] = set()
        pending = deque(dependents.get(member.id, ()))
        while pending:
            link = pending.popleft()
            if link.entry in seen or link.entry not in known:
                continue
            seen.add(link.entry)
            if link.entry in members:
                because[link.entry].append(Because(entry=member.id, source=link.source))
            elif known[link.entry].is_read:
                pending.extend(dependents.get(link.entry, ()))
    return because


def _instant(fact: Fact) -> float:
    return fact.at.timestamp()
