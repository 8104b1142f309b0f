"""What stands between each step and its reversal, seen before anybody decides: field by field (G4, G8, S3, S11). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from planner.fact import Fact, in_order
from takeback import json
from takeback.messages.plan import Conflict, ConflictField


@dataclass(frozen=True, slots=True)
class Observed:
    """A record as the recorder saw it for this plan; *error* says why it could not be seen."""

    resource: str
    exists: bool = True
    version: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


Observations = Mapping[tuple[str, str], Observed]
"""By tool server and resource."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a step meets the world: the version it will ask for, the one there now, whose change it waits for."""

    resource: str | None = None
    if_version: str | None = None
    observed_version: str | None = None
    expects: str | None = None
    conflict: Conflict | None = None
    unseen: str | None = None


class History:
    """Who changed which record, in the order of time."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        known = {fact.id: fact for fact in facts}
        self._writers: dict[str, list[Fact]] = defaultdict(list)
        for fact in in_order_of_time(known.values()):
            for resource in fact.changed if fact.happened else ():
                self._writers[resource].append(fact)

    def expected_version(self, step: Fact, resource: str | None) -> str | None:
        """The version at which *resource* stands if only what the journal knows, and has since cancelled out, happened to it.

        Taken back calls leave a record as it was, at the version of their reversal (S6). Where anything else was written
        after *step*, through the journal or beside it, it is the version that *step* left.
        """
        version = _own_version(step, resource)
        if resource is None or version is None:
            return version
        after = [fact for fact in self._writers[resource] if _later(fact, step)]
        # What was reverted after the step was also written after it: else its reversal is news to the step.
        reverted = {fact.id for fact in after if fact.entry.status == "reverted"}
        if not all(fact.id in reverted or _cancels(fact, reverted) for fact in after):
            return version
        if not _unbroken(self._since(resource, version), resource):
            return version
        last = next((fact for fact in reversed(after) if fact.is_reversal), None)
        effect = last.effect_on(resource) if last is not None else None
        return effect.version if effect is not None and effect.version is not None else version

    def met_as_left(self, step: Fact, later: Fact, resource: str) -> bool:
        """Whether *later*, once it is taken back, leaves *resource* as *step* left it: nobody wrote it between the two (G8).

        What calls hold as `before` tells of writes that the journal never saw.
        """
        version = _own_version(step, resource)
        if version is None:
            return True  # without a version a person picks the step, or nobody does
        line = self._since(resource, version)
        left = _own_version(later, resource)
        last = max(
            (n for n, fact in enumerate(line) if fact.id == later.id or _left(fact, resource) == left), default=0
        )
        between = line[1:last]
        reverted = {fact.id for fact in between if fact.entry.status == "reverted"}
        cancelled = all(fact.id in {later.id, *reverted} or _cancels(fact, reverted) for fact in between)
        return last > 0 and cancelled and _unbroken(line[: last + 1], resource)

    def _since(self, resource: str, version: str) -> list[Fact]:
        """The writers of *resource* from the last one on that left it at *version*."""
        writers = self._writers[resource]
        first = max((n for n, fact in enumerate(writers) if _left(fact, resource) == version), default=len(writers))
        return writers[first:]


def outlooks(steps: Sequence[Fact], observations: Observations, history: Iterable[Fact]) -> dict[str, Outlook]:
    """The outlook of each of *steps*, which stand in the order in which they will be taken back.

    *history* holds the entries of the campaign that changed these records. What an earlier step of the same plan takes back
    is no conflict for a later one (S11): the records are played through, step by step.
    """
    written = History([*history, *steps])
    world: dict[tuple[str, str], dict[str, Any]] = {}
    changed_by: dict[tuple[str, str], Fact] = {}
    found: dict[str, Outlook] = {}
    for step in steps:
        if step.entry.status == "reverted":
            primary = next(iter(step.changed), None)
            found[step.id] = Outlook(primary, written.expected_version(step, primary))
            continue
        found[step.id] = _outlook(step, observations, written, world, changed_by)
    return found


def in_order_of_time(facts: Iterable[Fact]) -> list[Fact]:
    """*facts* of any runs by the time of their first record; inside a run by its order."""
    return sorted(in_order(facts), key=lambda fact: fact.at)


def _outlook(
    step: Fact,
    observations: Observations,
    written: History,
    world: dict[tuple[str, str], dict[str, Any]],
    changed_by: dict[tuple[str, str], Fact],
) -> Outlook:
    fields: list[ConflictField] = []
    moved = False
    expects: str | None = None
    unseen: str | None = None
    for resource in step.changed:
        key = (step.entry.server, resource)
        seen = observations.get(key)
        if seen is None or seen.error is not None:
            unseen = unseen or (seen.error if seen is not None and seen.error else "it was not asked for")
        else:
            state = world.setdefault(key, dict(seen.fields) if seen.exists else {})
            fields += _differing(step, resource, state)
            later = changed_by.get(key)
            if later is None:
                expected = written.expected_version(step, resource)
                moved = moved or (expected is not None and seen.version != expected)
            else:
                moved = moved or not written.met_as_left(step, later, resource)
        expects = expects or (changed_by[key].id if key in changed_by else None)
        changed_by[key] = step
    primary = next(iter(step.changed), None)
    seen = observations.get((step.entry.server, primary)) if primary is not None else None
    return Outlook(
        resource=primary,
        if_version=written.expected_version(step, primary),
        observed_version=seen.version if seen is not None else None,
        expects=expects,
        conflict=Conflict(fields=fields) if fields or moved else None,
        unseen=unseen,
    )


def _differing(step: Fact, resource: str, state: dict[str, Any]) -> list[ConflictField]:
    """The fields of *step* that hold something else than it wrote; *state* then stands as after its reversal."""
    effect = step.effect_on(resource)
    differing: list[ConflictField] = []
    for change in effect.changes if effect is not None else ():
        now = state.get(change.field)
        if not _same(now, change.new) and change.field not in (effect.may_change if effect is not None else ()):
            differing.append(ConflictField(field=change.field, was=change.old, wrote=change.new, now=now))
        state[change.field] = change.old
    return differing


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)


def _cancels(fact: Fact, reverted: Set[str]) -> bool:
    return fact.is_reversal and fact.entry.status == "committed" and fact.entry.reverts in reverted


def _unbroken(line: Sequence[Fact], resource: str) -> bool:
    """Whether each of *line* found *resource* as the one before it had left it: nobody wrote beside the journal."""
    return all(_found_as_left(one, following, resource) for one, following in pairwise(line))


def _found_as_left(one: Fact, following: Fact, resource: str) -> bool:
    left, found = one.effect_on(resource), following.effect_on(resource)
    if left is None or found is None:
        return False
    if found.before is None:
        return bool(left.changes) and all(change.new is None for change in left.changes)  # it made what was deleted
    return left.version is not None and found.before.version == left.version


def _left(fact: Fact, resource: str) -> str | None:
    effect = fact.effect_on(resource)
    return None if effect is None else effect.version


def _own_version(step: Fact, resource: str | None) -> str | None:
    undo = step.entry.undo
    effect = step.effect_on(resource) if resource is not None else None
    left = effect.version if effect is not None else None
    if resource == next(iter(step.changed), None):
        return undo.if_version or left
    return (undo.if_versions or {}).get(resource or "", left)


def _later(fact: Fact, step: Fact) -> bool:
    if fact.entry.run == step.entry.run:
        return fact.seq > step.seq
    return fact.at > step.at
