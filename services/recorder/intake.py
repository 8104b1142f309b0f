"""Intake: from what a tool answered to what its entry says: effects, undo, broadcasts, what is unresolved. Pure (J8, J11).

What a result declares outranks the template of its operation; what neither says is built from the state seen before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from recorder.prepared import Prepared, ReadRecord
from recorder.resources import Resources
from takeback.extension import EXTENSION, Declared, DeclaredResult, Observation, UndoOffer, read_result
from takeback.messages.entry import Before, Effect, FieldChange, Unresolved


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of *resource* right before the call (J2), or why it could not be read (J4).

    *prepared*: what a port read that makes the way back itself, other records and findings included.
    """

    resource: str
    seen: Observation | None = None
    failure: str | None = None
    prepared: Prepared | None = None

    def wire(self) -> dict[str, Any]:
        """The snapshot as the entry keeps it (J6)."""
        more = {} if self.prepared is None else _beside(self.prepared)
        if self.seen is None:
            return {"resource": self.resource, "failure": self.failure, **more}
        return {"resource": self.resource, **_state(self.seen), **more}

    @classmethod
    def of(cls, kept: Any) -> Snapshot | None:
        """The snapshot that `wire` made."""
        if not isinstance(kept, Mapping) or "resource" not in kept:
            return None
        if "failure" in kept:
            return cls(kept["resource"], None, kept["failure"])
        return cls(kept["resource"], Observation(exists=kept["exists"], version=kept["version"], fields=kept["fields"]))


class Touched(NamedTuple):
    """A record that the entry changes or uses, at the version that it was left at."""

    resource: str
    role: Literal["changes", "uses"]
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Intake:
    """What the entry says after the call. `undo` still holds the compensation token: seal it before it is written."""

    effects: list[Effect] = field(default_factory=list)
    undo: UndoOffer = field(default_factory=UndoOffer)
    broadcasts: list[dict[str, Any]] = field(default_factory=list)
    unresolved: list[Unresolved] = field(default_factory=list)
    touched: list[Touched] = field(default_factory=list)


def _state(seen: Observation) -> dict[str, Any]:
    return {"exists": seen.exists, "version": seen.version, "fields": seen.fields}


def _beside(prepared: Prepared) -> dict[str, Any]:
    """The other records and the findings: whoever goes on after a crash has them too (J2)."""
    why = prepared.records[0].why if prepared.records else None
    beside = {"why": why, "others": [_other(record) for record in prepared.records[1:]], "reads": prepared.reads}
    return {name: value for name, value in beside.items() if value}


def _other(record: ReadRecord) -> dict[str, Any]:
    if record.seen is None:
        return {"resource": record.resource, "failure": record.failure}
    return {"resource": record.resource, **_state(record.seen), **({"why": record.why} if record.why else {})}


def expected_undo(declared: Declared) -> UndoOffer:
    """The undo of a call that has not ended: what its operation declares, without date and token."""
    template = declared.undo
    if declared.read_only:
        return UndoOffer(kind="none", why="it changes nothing")
    return UndoOffer(
        kind=template.kind,
        via=template.via,
        undo_authority=template.undo_authority,
        side_effects=list(template.side_effects),
        why=template.why if declared.declared else "its tool server declares nothing",
    )


def expected_touched(resources: Resources) -> list[Touched]:
    """What the call is about to change and use, before anything is known of versions."""
    changed = [Touched(name, "changes") for name in resources.changed]
    return changed + [Touched(used, "uses") for used in resources.uses]


def wants_observation(meta: Any, declared: Declared, snapshot: Snapshot | None) -> bool:
    """Whether the record has to be read after the call, because its result tells no effect that could be read."""
    if declared.read_only or snapshot is None or snapshot.seen is None:
        return False
    part = _part(meta)
    return not part.get("effect") and not part.get("effects")


def committed(
    meta: Any,
    declared: Declared,
    resources: Resources,
    snapshot: Snapshot | None,
    seen_after: Observation | None,
    at: datetime,
) -> Intake:
    """The intake of a call that the tool carried out at *at*. Never raises for what *meta* holds: see `Unresolved`."""
    if declared.read_only:
        return _read(meta, declared, resources, at)
    read: DeclaredResult = read_result(_whole(meta), declared.undo, at)
    effects = [_completed(effect, resources, snapshot) for effect in read.effects]
    if not effects and seen_after is not None and resources.changes is not None:
        effects = [_observed(resources.changes, snapshot, seen_after)]
    effects = _with_uses(effects, resources)
    undo = _with_version(read.undo, effects)
    undo = _without_snapshot(undo, snapshot, read.effects)
    if undo.kind == "unknown" and undo.why is None and not declared.declared and not _part(meta):
        undo = undo.model_copy(update={"why": "its tool server declares nothing"})
    return Intake(
        effects,
        undo,
        read.broadcasts,
        [*declared.unresolved, *resources.unresolved, *read.unresolved],
        _touched(effects, resources),
    )


def failed(declared: Declared, resources: Resources) -> Intake:
    """The intake of a call that the tool answered with an error: there is nothing to take back (J2)."""
    return Intake(
        undo=UndoOffer(kind="none", why="the call failed"),
        unresolved=[*declared.unresolved, *resources.unresolved],
        touched=expected_touched(resources),
    )


def observed_effect(snapshot: Snapshot, after: Observation) -> Effect:
    """What happened to the record of *snapshot*, from its states before and *after* alone."""
    return _observed(snapshot.resource, snapshot, after)


def changes_between(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[FieldChange]:
    """What changed from one state of a record to the next, field by field; a missing field reads as null."""
    old, new = before or {}, after or {}
    names = list(dict.fromkeys([*old, *new]))
    return [
        FieldChange(field=name, old=old.get(name), new=new.get(name))
        for name in names
        if (name in old, old.get(name)) != (name in new, new.get(name))
    ]


def _read(meta: Any, declared: Declared, resources: Resources, at: datetime) -> Intake:
    read = read_result(_whole(meta), declared.undo, at) if _part(meta) else DeclaredResult()
    used = list(dict.fromkeys([*resources.uses, *(use for effect in read.effects for use in effect.uses)]))
    versions = {effect.resource: effect.version for effect in read.effects if effect.resource is not None}
    effects = read.effects or ([Effect(uses=used)] if used else [])
    return Intake(
        effects=_with_uses(effects, resources),
        undo=expected_undo(declared),
        broadcasts=read.broadcasts,
        unresolved=[
            *declared.unresolved,
            *resources.unresolved,
            *(item for item in read.unresolved if not item.field.startswith("undo")),
        ],
        touched=[Touched(use, "uses", versions.get(use)) for use in used],
    )


def _completed(effect: Effect, resources: Resources, snapshot: Snapshot | None) -> Effect:
    """*effect* with what it leaves out: its record from the template, its pre-state and changes from the snapshot."""
    changed: dict[str, Any] = {}
    resource = effect.resource
    if resource is None and resources.changes is not None:
        resource = changed["resource"] = resources.changes
    if snapshot is not None and snapshot.seen is not None and snapshot.resource == resource:
        seen = snapshot.seen
        if effect.before is None and seen.exists:
            changed["before"] = Before(version=seen.version, fields=seen.fields or {})
    return effect.model_copy(update=changed) if changed else effect


def _observed(resource: str, snapshot: Snapshot | None, after: Observation) -> Effect:
    seen = snapshot.seen if snapshot is not None else None
    before = Before(version=seen.version, fields=seen.fields or {}) if seen is not None and seen.exists else None
    fields_after = after.fields if after.exists else None
    return Effect(
        resource=resource,
        before=before,
        version=after.version,
        changes=changes_between(None if before is None else before.fields, fields_after),
    )


def _with_uses(effects: list[Effect], resources: Resources) -> list[Effect]:
    if not resources.uses:
        return effects
    if not effects:
        return [Effect(resource=resources.changes, uses=list(resources.uses))]
    first = effects[0]
    uses = list(dict.fromkeys([*first.uses, *resources.uses]))
    return [first.model_copy(update={"uses": uses}), *effects[1:]]


def _with_version(undo: UndoOffer, effects: list[Effect]) -> UndoOffer:
    """The version that an undo expects is the one that the call left, where nothing else is said (J8, J10)."""
    if undo.kind != "compensate" or undo.if_version is not None or not effects:
        return undo
    return undo.model_copy(update={"if_version": effects[0].version}) if effects[0].version is not None else undo


def _without_snapshot(undo: UndoOffer, snapshot: Snapshot | None, told: list[Effect]) -> UndoOffer:
    """Without the state before, and without a server that told it, there is nothing to verify an undo against (J4)."""
    if undo.kind != "compensate" or snapshot is None or snapshot.failure is None:
        return undo
    if any(effect.before is not None for effect in told):
        return undo
    why = f"the state before the call could not be read: {snapshot.failure}"
    return undo.model_copy(update={"kind": "unknown", "why": why})


def _touched(effects: list[Effect], resources: Resources) -> list[Touched]:
    found: dict[tuple[str, str], Touched] = {}
    for effect in effects:
        if effect.resource is not None and (effect.version is not None or effect.changes or effect.before is not None):
            found[effect.resource, "changes"] = Touched(effect.resource, "changes", effect.version)
        for use in effect.uses:
            found.setdefault((use, "uses"), Touched(use, "uses"))
    for touched in expected_touched(resources):
        found.setdefault((touched.resource, touched.role), touched)
    return list(found.values())


def _part(meta: Any) -> Mapping[str, Any]:
    return meta if isinstance(meta, Mapping) else {}


def _whole(meta: Any) -> dict[str, Any] | None:
    """The port hands over the extension's part alone; the reader wants the ``_meta`` around it."""
    return None if meta is None else {EXTENSION: meta}
