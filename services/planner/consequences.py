"""What follows when the approver leaves a step out or goes over a conflict: in words, before the decision (G5, S15). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from planner.conflicts import Outlook, in_order_of_time
from planner.fact import Fact
from planner.graph import TARGET
from takeback import json
from takeback.messages.plan import Because, Consequence, UnresolvedEntry

BINDING = frozenset({"declared", "host", "confirmed"})
"""Links that are known, not assumed: over these a broken entry blocks what builds on it (J11)."""


def consequences(
    steps: Sequence[Fact],
    outlooks: Mapping[str, Outlook],
    because: Mapping[str, Sequence[Because]],
    members: Sequence[Fact],
    unresolved: Sequence[UnresolvedEntry],
    history: Iterable[Fact],
) -> list[Consequence]:
    """For each step that is still to be run, what stays without it and what is lost by forcing it."""
    names = {fact.id: fact.name for fact in members}
    broken = {item.entry for item in unresolved}
    others = [fact for fact in in_order_of_time(history) if fact.id not in names]
    waiting = {outlooks[step.id].expects: step for step in steps}
    found = []
    for step in steps:
        if step.entry.status == "reverted":
            continue
        left_out = [
            _stays(step, outlooks[step.id]),
            *_stands_on_nothing(step, because[step.id], names),
            *_meets_it(waiting.get(step.id)),
        ]
        blocked = _blocked(step, because[step.id], broken, names)
        overridden = _lost(step, outlooks[step.id], others) + _picked(step, outlooks[step.id])
        found.append(Consequence(entry=step.id, if_left_out=left_out + blocked, if_overridden=overridden))
    return found


def _stays(step: Fact, outlook: Outlook) -> str:
    effect = next((effect for effect in step.effects if effect.changes), None)
    if effect is None:
        return f"What {step.name} did stays as it is."
    record = effect.resource or "The record"
    since = {field.field: field.now for field in outlook.conflict.fields} if outlook.conflict is not None else {}
    kept = ", ".join(f"{one.field} = {_shown(one.new)}" for one in effect.changes if one.field not in since)
    now = ", ".join(f"{name} = {_shown(value)}" for name, value in since.items())
    if not now:
        return f"{record} keeps what {step.name} wrote: {kept}."
    if not kept:
        return f"{record} stays as it was changed since: {now}."
    return f"{record} keeps what {step.name} wrote: {kept}; and what was changed since: {now}."


def _stands_on_nothing(step: Fact, because: Sequence[Because], names: Mapping[str, str]) -> list[str]:
    grounds = [reason for reason in because if reason.source != TARGET]
    if not grounds:
        return []
    told = ", ".join(f"{names[reason.entry]} [{reason.source}]" for reason in grounds[:10])
    more = f" and {len(grounds) - 10} more" if len(grounds) > 10 else ""
    return [f"{step.name} may build on what is taken back: {told}{more}."]


def _meets_it(other: Fact | None) -> list[str]:
    if other is None:
        return []
    return [
        f"{other.name} changed the same record before it: it will end as a conflict, unless it is left out or overridden too."
    ]


def _blocked(step: Fact, because: Sequence[Because], broken: Set[str], names: Mapping[str, str]) -> list[str]:
    return [
        f"{step.name} is blocked in any case: it builds on {names[reason.entry]}, which is unresolved."
        for reason in because
        if reason.entry in broken and reason.source in BINDING
    ]


def _lost(step: Fact, outlook: Outlook, others: Sequence[Fact]) -> list[str]:
    if outlook.conflict is None:
        return []
    lost = []
    for conflict in outlook.conflict.fields:
        author = next((fact for fact in reversed(others) if _wrote(fact, step, conflict.field)), None)
        whose = (
            f"set by {author.name} of run {author.entry.run} for {author.entry.principal}"
            if author is not None
            else "set by somebody outside the journal"
        )
        lost.append(
            f"{conflict.field}: {_shown(conflict.now)}, {whose}, is lost; {_shown(conflict.was)} is put back over it."
        )
    if not outlook.conflict.fields:
        lost.append("The record was changed since in other fields: what they hold may be lost.")
    return lost


def _wrote(fact: Fact, step: Fact, name: str) -> bool:
    effects = (fact.effect_on(resource) for resource in step.changed)
    return fact.at >= step.at and any(
        change.field == name for effect in effects if effect is not None for change in effect.changes
    )


def _picked(step: Fact, outlook: Outlook) -> list[str]:
    if outlook.unseen is not None:
        return [f"Its record could not be read for this plan ({outlook.unseen}): what was changed since is not known."]
    if outlook.if_version is None:
        return [f"{step.name} declared no version: whatever was written since is put back with it, unseen."]
    return []


def _shown(value: Any) -> str:
    text = json.dumps(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."
