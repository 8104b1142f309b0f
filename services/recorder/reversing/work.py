"""What an approved plan asks of each step, given what became of the steps before it: pure (G5, G8, G9).

The order is the plan's. A step is run, or it has an outcome without anything being sent: left out, blocked by a step that
had to go first and did not go through, taken back already, not asked for by a person, its window closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from takeback import json
from takeback.extension import Observation
from takeback.messages.entry import Effect, Entry, Undo
from takeback.messages.plan import Plan, Step, StepOutcome

LETS_PASS: Final[frozenset[StepOutcome]] = frozenset({"reverted", "already_reverted", "left_out"})
"""Outcomes that let the steps behind them go on: of a step left out the plan has said what follows (G5)."""

_BINDING: Final = frozenset({"declared", "host", "confirmed"})
"""Links that are known; a default link to a broken entry blocks nothing (J11)."""


@dataclass(frozen=True)
class Decided:
    """A plan with the decision that approved it, and what was observed for it."""

    plan: Plan
    by: str
    leave_out: frozenset[str] = frozenset()
    override: frozenset[str] = frozenset()
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reason: str = ""
    category: str | None = None
    observed: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    """The version of a resource of an entry when the plan was made; a resource that could not be observed is absent."""

    @cached_property
    def first(self) -> Mapping[str, Sequence[str]]:
        """For each step, the steps that have to go before it."""
        return must_go_first(self.plan)

    def forced(self, step: Step) -> bool:
        """Whether the approver said to go on over what others changed, at exactly the version that was shown."""
        return step.entry in self.override or bool(self.fields.get(step.entry))


@dataclass(frozen=True, slots=True)
class Settled:
    """The step has its outcome; nothing is sent to a tool server."""

    outcome: StepOutcome
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The step is to be run."""


@dataclass(frozen=True, slots=True)
class Left:
    """The versions that reversals left records at: by steps *now* in this plan, and by reversals from *before* it."""

    now: Mapping[str, str | None] = field(default_factory=dict)
    before: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expected:
    """The version at which a record must stand; *any_version* where nobody could know one and a person said to go on."""

    version: str | None
    any_version: bool = False

    def met_by(self, version: str | None) -> bool:
        """Whether a record seen at *version* may be written over."""
        return self.any_version or self.version == version


def must_go_first(plan: Plan) -> dict[str, list[str]]:
    """For each step, the steps that build on it: they are taken back before it, or it is not taken back at all (S4)."""
    steps = {step.entry for step in plan.steps}
    first: dict[str, list[str]] = {step.entry: [] for step in plan.steps}
    for step in plan.steps:
        for because in step.because:
            if because.entry in steps and because.entry != step.entry and step.entry not in first[because.entry]:
                first[because.entry].append(step.entry)
        if step.expects in steps and step.expects is not None and step.expects not in first[step.entry]:
            first[step.entry].append(step.expects)
    return first


def verdict(
    decided: Decided, step: Step, entry: Entry, done: Mapping[str, StepOutcome], now: datetime
) -> Settled | Run:
    """What becomes of *step*, whose entry stands as *entry* at *now*; *done* are the outcomes of the steps before it."""
    if step.entry in decided.leave_out:
        return Settled("left_out")
    if entry.status == "reverted":
        return Settled("already_reverted")
    blocked = _blocked(decided, step, done)
    if blocked is not None:
        return Settled("blocked", blocked)
    return _impossible(entry, now) or _needs_override(decided, step) or Run()


def _needs_override(decided: Decided, step: Step) -> Settled | None:
    """Single fields are taken back over what others changed beside them, over a change of themselves only when overridden."""
    wanted = decided.fields.get(step.entry)
    if not wanted or step.conflict is None or step.entry in decided.override:
        return None
    taken = [item.field for item in step.conflict.fields if item.field in wanted]
    if not taken:
        return None
    return Settled(
        "conflict",
        f"{', '.join(taken)}: somebody changed it since, and no override says to go over it. Nothing was sent.",
    )


def _impossible(entry: Entry, now: datetime) -> Settled | None:
    why: str | None = None
    if entry.status not in ("committed", "reverting"):
        why = f"The entry is {entry.status}: there is nothing that can be taken back"
    elif entry.undo.kind != "compensate":
        why = f"The entry's undo is {entry.undo.kind}"
    elif entry.status == "committed" and window_closed(entry.undo, now):
        why = f"The window closed at {entry.undo.undo_by:%Y-%m-%d %H:%M:%S} UTC"
    return None if why is None else Settled("failed", f"{why}. Nothing was sent.")


def window_closed(undo: Undo, now: datetime) -> bool:
    """Whether the undo's window has passed at *now*."""
    return undo.undo_by is not None and undo.undo_by <= now


def effects_of(entry: Entry) -> list[Effect]:
    """All effects of *entry* on records that have a name; the first is the one that `ifVersion` is about."""
    effects = entry.effects or ([entry.effect] if entry.effect is not None else [])
    return [effect for effect in effects if effect.resource is not None]


def expected_versions(
    decided: Decided, step: Step, entry: Entry, left: Left, names: Mapping[str, str] | None = None
) -> dict[str, Expected] | None:
    """The version that each record of *step* must have to be written over; None where the approver saw none to go by.

    A record that an earlier step of the plan changed must be as that step left it (S11), unless the plan foresaw a conflict and
    nobody overrode it: then as the call itself left it, which it is not. An override or a partial take-back goes over exactly
    the version that was shown to the approver, never over a newer one (G8). *names* says under which name a record is known
    now, where it was made again under another.
    """
    names = names or {}
    expected: dict[str, Expected] = {}
    follows = step.conflict is None or decided.forced(step)
    for index, effect in enumerate(effects_of(entry)):
        assert effect.resource is not None
        resource = names.get(effect.resource, effect.resource)
        if resource in left.now and follows:
            expected[resource] = Expected(left.now[resource])
        elif decided.forced(step):
            seen = _seen(decided, step, effect.resource, primary=index == 0)
            if seen is None and effect.version is not None:
                return None
            expected[resource] = seen or Expected(None, any_version=True)
        elif resource in left.before and follows:
            expected[resource] = Expected(left.before[resource])
        elif index == 0:
            expected[resource] = Expected(step.if_version)
        elif step.conflict is None and (entry.id, effect.resource) in decided.observed:
            expected[resource] = Expected(decided.observed[entry.id, effect.resource])  # the plan saw no conflict there
        else:
            expected[resource] = Expected((entry.undo.if_versions or {}).get(effect.resource, effect.version))
    return expected


def rewritten(
    decided: Decided,
    step: Step,
    entry: Entry,
    left: Left,
    seen: Mapping[str, Observation],
    secret: Collection[str],
) -> dict[str, list[str]]:
    """For each record of *step*, the fields that no longer hold what the call wrote, though its version is the expected one.

    Versions come by twice where a record is made anew. Nothing is said of a record that another reversal or a step of the
    same plan may have changed, nor of fields that may change or are secret: those are not as the call wrote them anyway.
    """
    if decided.forced(step) or step.conflict is not None or step.expects is not None:
        return {}
    effects = effects_of(entry)
    once = [name for name, times in Counter(effect.resource for effect in effects).items() if times == 1]
    found: dict[str, list[str]] = {}
    for effect in effects:
        name = effect.resource
        look = seen.get(name) if name is not None and name in once else None
        if name is None or look is None or name in left.now or name in left.before:
            continue
        if look.exists is None or (look.exists and look.fields is None) or look.version != effect.version:
            continue
        now = look.fields or {}
        differing = [
            change.field
            for change in effect.changes
            if change.field not in effect.may_change
            and change.field not in secret
            and json.dumps(now.get(change.field)) != json.dumps(change.new)
        ]
        if differing:
            found[name] = differing
    return found


def resources_of(plan: Plan, entries: Mapping[str, Entry], leave_out: frozenset[str]) -> list[str]:
    """The records that the reversal of *plan* may still change: what is held still while it runs."""
    found = {
        effect.resource: None
        for step in plan.steps
        if step.entry not in leave_out and entries[step.entry].status != "reverted"
        for effect in effects_of(entries[step.entry])
        if effect.resource is not None
    }
    return list(found)


def observed_of(items: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str | None]:
    """The versions in what a plan observed, by entry and resource; failed observations left away."""
    return {
        (str(item["entry"]), str(item["resource"])): item.get("version")
        for item in items
        if item.get("error") is None and item.get("resource") is not None and item.get("exists") is not None
    }


def _blocked(decided: Decided, step: Step, done: Mapping[str, StepOutcome]) -> str | None:
    labels = {other.entry: other.label for other in decided.plan.steps}
    for other in decided.first[step.entry]:
        outcome = done.get(other)
        if outcome not in LETS_PASS:
            said = outcome.replace("_", " ") if outcome else "not taken back yet"
            return f"{labels[other]} ({other}) builds on it and has to go first: it is {said}. Nothing was sent."
    broken = {item.entry for item in decided.plan.unresolved}
    for because in step.because:
        if because.entry in broken and because.source in _BINDING:
            return f"It builds on {because.entry}, which is unresolved. Nothing was sent."
    if step.needs_person is not None and step.entry not in decided.override:
        return f"It runs only when a person picks it by override ({step.needs_person}). Nothing was sent."
    return None


def _seen(decided: Decided, step: Step, resource: str, *, primary: bool) -> Expected | None:
    if (step.entry, resource) in decided.observed:
        return Expected(decided.observed[step.entry, resource])
    if primary and step.observed_version is not None:
        return Expected(step.observed_version)
    return None
