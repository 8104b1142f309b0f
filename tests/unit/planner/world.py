"""Small worlds for the planner's pure parts: entries written down in a line, and the plan that follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from planner.conflicts import Observed, in_order_of_time
from planner.fact import Fact
from planner.graph import Closure, closure
from planner.links import Confirmation, edges_of
from planner.plan import World, assemble
from takeback.messages.entry import Before, Effect, Entry, FieldChange, Undo, Unresolved
from takeback.messages.events import HostLinks, Matchable
from takeback.messages.plan import Link, Plan

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOW = START + timedelta(hours=1)


def fact(
    number: int,
    *,
    run: str = "run_a",
    resource: str | None = None,
    old: Any = "before",
    new: Any = None,
    changes: Mapping[str, tuple[Any, Any]] | None = None,
    version: str | None = "auto",
    uses: Sequence[str] = (),
    host: HostLinks | None = None,
    arguments: Sequence[str] = (),
    results: Sequence[str] = (),
    kind: str = "call",
    status: str = "committed",
    undo: Undo | None = None,
    unresolved: Sequence[Unresolved] = (),
    principal: str = "paladin",
    agent: str = "agent",
    reverts: str | None = None,
    interaction: str | None = None,
    minutes: float | None = None,
) -> Fact:
    """The *number*-th entry of *run*: it changed field ``value`` of *resource* from *old* to *new* unless told otherwise."""
    at = START + timedelta(minutes=number if minutes is None else minutes)
    version = f"v{number}" if version == "auto" and resource is not None else None if version == "auto" else version
    changed = changes if changes is not None else {"value": (old, new if new is not None else f"set by {number}")}
    effects = []
    if resource is not None or uses:
        effects.append(
            Effect(
                resource=resource,
                before=Before(version=f"v{number - 1}", fields={name: pair[0] for name, pair in changed.items()}),
                version=version,
                changes=[FieldChange(field=name, old=pair[0], new=pair[1]) for name, pair in changed.items()]
                if resource is not None and kind != "read"
                else [],
                uses=list(uses),
            )
        )
    entry = Entry.model_validate(
        {
            "id": entry_id(number, run),
            "label": f"e{number}",
            "run": run,
            "campaign": "cmp_a",
            "interaction": interaction,
            "server": "crm",
            "operation": "set",
            "tier": "medium",
            "kind": kind,
            "status": status,
            "principal": principal,
            "agent": agent,
            "model": "m1",
            "effect": effects[0] if effects else None,
            "effects": effects,
            "undo": undo or Undo(kind="compensate", if_version=version),
            "unresolved": list(unresolved),
            "reverts": reverts,
            "createdAt": at,
        }
    )
    return Fact(entry, number, at, host or HostLinks(), Matchable(arguments=list(arguments), results=list(results)))


def entry_id(number: int, run: str = "run_a") -> str:
    return f"ent_{run}_{number}"


def links_of(facts: Iterable[Fact], confirmations: Iterable[Confirmation] = ()) -> list[Link]:
    """The links of one run as they stand on the wire."""
    return [edge.link() for edge in edges_of(facts, confirmations)]


def closed(facts: Iterable[Fact], targets: Iterable[str], confirmations: Iterable[Confirmation] = ()) -> Closure:
    """What goes with *targets*."""
    facts, confirmations = list(facts), list(confirmations)
    edges = [
        edge
        for run in sorted({one.entry.run for one in facts})
        for edge in edges_of([one for one in facts if one.entry.run == run], confirmations)
    ]
    return closure(facts, edges, targets)


def as_left(facts: Iterable[Fact]) -> dict[tuple[str, str], Observed]:
    """Every record as the last of *facts* that changed it left it."""
    seen: dict[tuple[str, str], Observed] = {}
    for one in in_order_of_time(facts):
        for effect in one.effects if one.happened else ():
            if effect.resource is not None and not one.is_read:
                key = (one.entry.server, effect.resource)
                before = dict(seen[key].fields) if key in seen else {}
                fields = before | {change.field: change.new for change in effect.changes}
                seen[key] = Observed(effect.resource, version=effect.version, fields=fields)
    return seen


def planned(
    facts: Iterable[Fact],
    targets: Iterable[str],
    *,
    observed: Mapping[tuple[str, str], Observed] | None = None,
    confirmations: Iterable[Confirmation] = (),
    related: Sequence[Fact] = (),
    now: datetime = NOW,
    **world: Any,
) -> Plan:
    """The plan that takes *targets* back; records are as the entries left them unless *observed* says otherwise."""
    facts = list(facts)
    return assemble(
        "pln_1",
        "cmp_a",
        closed(facts, targets, confirmations),
        World(
            now=now,
            observations={**as_left(facts), **(observed or {})},
            related=[*facts, *related],
            **world,
        ),
    )


def steps(plan: Plan) -> list[str]:
    """The labels of the steps, in order."""
    return [step.label for step in plan.steps]
