"""Who read what will change: entries of other runs, and the agents whose reading nobody can see (G3, G4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.conflicts import in_order_of_time
from planner.fact import Fact
from takeback.messages.campaign import Memory
from takeback.messages.plan import ReadSince, ReadSinceIncomplete


def read_since(members: Sequence[Fact], others: Iterable[Fact]) -> list[ReadSince]:
    """Entries among *others* that came after one of *members* in another run and used the value that it wrote.

    Each reader stands once for a record: through what it said it used, else through an argument equal to a result.
    """
    inside = {fact.id for fact in members}
    found: dict[tuple[str, str], ReadSince] = {}
    for other in in_order_of_time(others):
        if other.id in inside or other.is_reversal or not other.happened:
            continue
        for member in in_order_of_time(members):
            if member.entry.run == other.entry.run or other.at <= member.at:
                continue
            for resource, through in _readings(member, other):
                held = found.get((other.id, resource))
                if held is None or (held.through == "arguments" and through == "uses"):
                    found[other.id, resource] = ReadSince.model_validate(
                        {"entry": other.id, "run": other.entry.run, "resource": resource, "through": through}
                    )
    return list(found.values())


def blind_spots(active: Iterable[str], memories: Mapping[str, Memory]) -> list[ReadSinceIncomplete]:
    """The agents that were *active* since, and whose memory does not, or may not, pass through the recorder."""
    found = []
    for agent in sorted(set(active)):
        memory = memories.get(agent, "unknown")
        if memory != "yes":
            found.append(ReadSinceIncomplete(agent=agent, through_recorder=memory))
    return found


def _readings(member: Fact, other: Fact) -> list[tuple[str, str]]:
    used = [(resource, "uses") for resource in member.changed if resource in other.uses]
    if used or set(member.matchable.results).isdisjoint(other.matchable.arguments):
        return used
    return [(next(iter(member.changed), f"{member.entry.server}/{member.entry.operation}"), "arguments")]
