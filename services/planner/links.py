"""What an entry builds on, and how that is known: declared, host, inferred, default, confirmed (G1, G2). Pure.

Links stay inside a run; entries of other runs appear in a plan as readers, and become steps only as targets (G3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

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


def links_of(facts: Iterable[Fact], confirmations: Iterable[Confirmation] = ()) -> list[Link]:
    """Every link of one run's *facts*, in the order of the later entry, then of the earlier one.

    A reversal builds on what it takes back and is linked to nothing else; what never happened is linked to nothing.
    """
    confirmed = {confirmation.link: confirmation for confirmation in confirmations}
    links: list[Link] = []
    earlier: list[Fact] = []
    for fact in in_order(fact for fact in facts if fact.happened):
        if not fact.is_reversal:
            for before in earlier:
                links.extend(_confirmed(link, confirmed) for link in _between(fact, before))
        earlier.append(fact)
    return links


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


def _between(fact: Fact, before: Fact) -> list[Link]:
    changed = before.changed
    links = [_link(fact, before, "declared", used) for used in fact.declared_uses if used in changed]
    links += [_link(fact, before, "host", used) for used in fact.host.uses if used in changed]
    if before.id in fact.host.depends_on:
        links.append(_link(fact, before, "host"))
    if _match(fact, before):
        links.append(_link(fact, before, "inferred"))
    if not replaces_default(fact):
        links.append(_link(fact, before, "default"))
    else:
        # Two writers of one record: whatever the later one read, the earlier cannot go back from under it (S4).
        links += [_link(fact, before, "default", resource) for resource in fact.changed if resource in changed]
    return links


def _match(fact: Fact, before: Fact) -> bool:
    return not set(before.matchable.results).isdisjoint(fact.matchable.arguments)


def _link(fact: Fact, before: Fact, source: LinkSource, resource: str | None = None) -> Link:
    return Link(
        id=link_id(fact.id, before.id, source, resource),
        entry=fact.id,
        depends_on=before.id,
        source=source,
        resource=resource,
    )


def _confirmed(link: Link, confirmed: Mapping[str, Confirmation]) -> Link:
    if (word := confirmed.get(link.id)) is None:
        return link
    return link.model_copy(update={"source": "confirmed", "confirmed_by": word.by, "confirmed_at": word.at})


def strongest(links: Sequence[Link]) -> list[Link]:
    """One link for each pair of entries: the one that is known best."""
    best: dict[tuple[str, str], Link] = {}
    for link in links:
        pair = (link.entry, link.depends_on)
        if pair not in best or _STRENGTH[link.source] > _STRENGTH[best[pair].source]:
            best[pair] = link
    return list(best.values())


_STRENGTH: Mapping[LinkSource, int] = {"default": 0, "inferred": 1, "host": 2, "declared": 3, "confirmed": 4}
