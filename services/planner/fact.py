"""What the planner knows of an entry: the entry as of its last record, and what it builds on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from takeback.messages.entry import Effect, Entry
from takeback.messages.events import EntryResource, HostLinks, Matchable

# No call of these statuses ever reached a record, so nothing can have been built on it.
NEVER_HAPPENED = frozenset({"awaiting_approval", "denied", "expired", "failed"})
# Behind everything that was published: an entry that is still under way has no record of its own yet.
_UNDER_WAY = 2**62


@dataclass(frozen=True, slots=True)
class Fact:
    """An entry in its run. *seq* and *at* are those of its first published record: the order of what happened."""

    entry: Entry
    seq: int
    at: datetime
    host: HostLinks = field(default_factory=HostLinks)
    matchable: Matchable = field(default_factory=Matchable)
    resources: Sequence[EntryResource] = ()

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def name(self) -> str:
        """How texts for people call it: its label in the run and what it did."""
        return f"{self.entry.label} ({self.entry.server}/{self.entry.operation})"

    @property
    def happened(self) -> bool:
        """Whether it reached its tool, as far as is known."""
        return self.entry.status not in NEVER_HAPPENED

    @property
    def is_read(self) -> bool:
        return self.entry.kind == "read"

    @property
    def is_reversal(self) -> bool:
        return self.entry.kind == "reversal"

    @property
    def effects(self) -> list[Effect]:
        """All effects, the first first."""
        return self.entry.effects or ([self.entry.effect] if self.entry.effect is not None else [])

    @property
    def changed(self) -> list[str]:
        """The records that it changed, the first first."""
        if self.is_read:
            return []
        own = [effect.resource for effect in self.effects if effect.resource is not None]
        return list(dict.fromkeys([*own, *(item.resource for item in self.resources if item.role == "changes")]))

    @property
    def declared_uses(self) -> list[str]:
        """What the tool server itself says that the call read (G1); a read reads its own record."""
        own = [effect.resource for effect in self.effects if self.is_read and effect.resource is not None]
        return list(dict.fromkeys([*own, *(used for effect in self.effects for used in effect.uses)]))

    @property
    def uses(self) -> list[str]:
        """All that it read, whoever says so."""
        listed = (item.resource for item in self.resources if item.role == "uses")
        return list(dict.fromkeys([*self.declared_uses, *self.host.uses, *listed]))

    def effect_on(self, resource: str) -> Effect | None:
        """Its effect on *resource*, None where it declared none."""
        return next((effect for effect in self.effects if effect.resource == resource), None)


def in_order(facts: Iterable[Fact]) -> list[Fact]:
    """*facts* of one run in the order in which they happened."""
    return sorted(facts, key=lambda fact: (fact.seq, fact.entry.created_at, fact.id))


def with_unsettled(facts: Iterable[Fact], unsettled: Iterable[Entry]) -> list[Fact]:
    """*facts* with what the recorder says is under way just now: calls that wait or run, entries being taken back.

    An outcome that is known meanwhile outranks it: the question was asked before the answer was read.
    """
    known = {fact.id: fact for fact in facts}
    for entry in unsettled:
        held = known.get(entry.id)
        if held is None:
            known[entry.id] = Fact(entry, _UNDER_WAY, entry.created_at)
        elif held.entry.status == "awaiting_approval":
            known[entry.id] = replace(held, entry=entry, seq=_UNDER_WAY)
        elif held.entry.status == "committed" and entry.status == "reverting":
            known[entry.id] = replace(held, entry=entry)
    return list(known.values())
