"""What an entry builds on, and how that is known: declared, host, inferred, default, confirmed (G1, G2). Pure.

Links stay inside a run; entries of other runs appear in a plan as readers, and become steps only as targets (G3).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from planner.fact import Fact, in_order
from takeback.messages.plan import Link, LinkSource


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A person's word that a link is real (G2)."""

    link: str
    entry: str
    depends_on: str
    by: str
    at: datetime


class Edge(NamedTuple):
    """A link before anybody wants to read it: a long run has very many."""

    entry: str
    depends_on: str
    origin: LinkSource
    resource: str | None = None
    confirmation: Confirmation | None = None

    @property
    def source(self) -> LinkSource:
        """How the link is known: what a person confirmed outranks where it came from."""
        return self.origin if self.confirmation is None else "confirmed"

    def link(self) -> Link:
        """The edge as it stands on the wire."""
        word = self.confirmation
        return Link.model_construct(
            id=link_id(self.entry, self.depends_on, self.origin, self.resource),
            entry=self.entry,
            depends_on=self.depends_on,
            source=self.source,
            resource=self.resource,
            confirmed_by=word.by if word is not None else None,
            confirmed_at=word.at if word is not None else None,
        )


def edges_of(facts: Iterable[Fact], confirmations: Iterable[Confirmation] = ()) -> list[Edge]:
    """Every link of one run's *facts*, in the order of the later entry, then of the earlier one.

    A reversal builds on what it takes back and is linked to nothing else; what never happened is linked to nothing.
    """
    confirmed: dict[tuple[str, str], list[Confirmation]] = defaultdict(list)
    for confirmation in confirmations:
        confirmed[confirmation.entry, confirmation.depends_on].append(confirmation)
    edges: list[Edge] = []
    earlier: list[_Seen] = []
    for fact in in_order(fact for fact in facts if fact.happened):
        seen = _Seen(fact)
        if not fact.is_reversal:
            for before in earlier:
                found = _between(seen, before)
                words = confirmed.get((fact.id, before.fact.id))
                edges += found if words is None else (_confirmed(edge, words) for edge in found)
        earlier.append(seen)
    return edges


def link_id(entry: str, depends_on: str, source: LinkSource, resource: str | None) -> str:
    """The id of a link: it names the later entry, so that its run can be found, and is the same after a rebuild."""
    digest = hashlib.sha256("\n".join((entry, depends_on, source, resource or "")).encode()).hexdigest()
    return f"lnk_{entry}_{digest[:12]}"


def entry_of_link(link: str) -> str | None:
    """The later entry of the link named *link*; None for what is no link's id."""
    parts = link.removeprefix("lnk_").rsplit("_", 1)
    return parts[0] if link.startswith("lnk_") and len(parts) == 2 else None


def replaces_default(fact: Fact) -> bool:
    """Whether somebody who knows said what *fact* builds on: the tool server, or a host whom the recorder trusts (G2)."""
    return bool(fact.declared_uses) or fact.host.replaces_default


class _Seen:
    """What is asked of an entry again and again, for each one that came after it."""

    def __init__(self, fact: Fact) -> None:
        self.fact = fact
        self.changed = frozenset(fact.changed)
        self.declared_uses = fact.declared_uses
        self.depends_on = frozenset(fact.host.depends_on)
        self.arguments = frozenset(fact.matchable.arguments)
        self.results = frozenset(fact.matchable.results)
        self.replaces_default = replaces_default(fact)


def _between(later: _Seen, before: _Seen) -> list[Edge]:
    entry, earlier = later.fact.id, before.fact.id
    edges = [Edge(entry, earlier, "declared", used) for used in later.declared_uses if used in before.changed]
    edges += [Edge(entry, earlier, "host", used) for used in later.fact.host.uses if used in before.changed]
    if earlier in later.depends_on:
        edges.append(Edge(entry, earlier, "host"))
    if before.results and not before.results.isdisjoint(later.arguments):
        edges.append(Edge(entry, earlier, "inferred"))
    if not later.replaces_default:
        edges.append(Edge(entry, earlier, "default"))
    else:
        # Two writers of one record: whatever the later one read, the earlier cannot go back from under it (S4).
        edges += [Edge(entry, earlier, "default", resource) for resource in sorted(later.changed & before.changed)]
    return edges


def _confirmed(edge: Edge, words: Sequence[Confirmation]) -> Edge:
    link = link_id(edge.entry, edge.depends_on, edge.origin, edge.resource)
    return next((edge._replace(confirmation=word) for word in words if word.link == link), edge)


def stronger(one: LinkSource, other: LinkSource) -> LinkSource:
    """Of two sources of one link the one that is known better."""
    return max(one, other, key=_STRENGTH.__getitem__)


_STRENGTH: Mapping[LinkSource, int] = {"default": 0, "inferred": 1, "host": 2, "declared": 3, "confirmed": 4}
