"""Who read what will change: entries of other runs, and the agents whose reading nobody can see (G3, G4). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from planner.conflicts import in_order_of_time
from planner.fact import Fact
from takeback.messages.campaign import Memory
from takeback.messages.plan import ReadSince, ReadSinceIncomplete


def read_since(members: Sequence[Fact], others: Iterable[Fact]) -> list[ReadSince]:
    """Entries among *others* that came after one of *members* in another run and used the value that it wrote.

    Each reader stands once for a record: through what it said it used, else through an argument equal to a result. Members
    are in the plan already and no readers; of those that are reverted nothing will change.
    """
    inside = {fact.id for fact in members}
    writers: dict[str, list[Fact]] = defaultdict(list)
    givers: dict[str, list[Fact]] = defaultdict(list)
    for member in in_order_of_time(fact for fact in members if fact.entry.status != "reverted"):
        for resource in member.changed:
            writers[resource].append(member)
        for value in member.matchable.results:
            givers[value].append(member)
    found: list[ReadSince] = []
    for other in in_order_of_time(others):
        if other.id in inside or other.is_reversal or not other.happened:
            continue
        readings: dict[str, Literal["uses", "arguments"]] = {}
        for used in other.uses:
            if any(_before(writer, other) for writer in writers.get(used, ())):
                readings[used] = "uses"
        for value in other.matchable.arguments:
            for giver in givers.get(value, ()):
                if _before(giver, other):
                    readings.setdefault(_about(giver), "arguments")
        found += [
            ReadSince(entry=other.id, run=other.entry.run, resource=resource, through=through)
            for resource, through in readings.items()
        ]
    return found


def blind_spots(active: Mapping[str, Memory]) -> list[ReadSinceIncomplete]:
    """The agents that were *active* since, and whose memory does not, or may not, pass through the recorder."""
    return [
        ReadSinceIncomplete(agent=agent, through_recorder=memory)
        for agent, memory in sorted(active.items())
        if memory != "yes"
    ]


def _before(member: Fact, other: Fact) -> bool:
    return member.entry.run != other.entry.run and member.at < other.at


def _about(fact: Fact) -> str:
    """What a value came from: the record that the entry changed, else the operation itself."""
    return next(iter(fact.changed), f"{fact.entry.server}/{fact.entry.operation}")
