"""What a manifest says of one call: the records it changes, how they stand, what came of it, which way leads back. Pure.

Nothing here asks a server: states and results come in as values, and what is to be done goes out as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from recorder.intake import changes_between
from recorder.manifest import expressions, uris
from recorder.manifest.expressions import ExpressionFailed, Scope
from recorder.manifest.functions import FUNCTIONS, fingerprint
from recorder.manifest.model import Branch, Change, Manifest, Operation, Record, Reference
from takeback import json
from takeback.extension import UndoTemplate
from takeback.messages.entry import UndoKind

Json = dict[str, Any]
_LATE: Final = frozenset({"result", "after"})
_NO_WAY: Final = Branch(level="none", why="its manifest describes no way back from this state")


@dataclass(frozen=True, slots=True)
class State:
    """A record as it was read. *why*: it is there and cannot be given back."""

    exists: bool
    version: str | None = None
    fields: Json | None = None
    why: str | None = None

    def scope(self) -> Json:
        """The state as expressions see it."""
        return {
            "exists": self.exists,
            "version": self.version,
            "fields": self.fields,
            "restorable": self.why is None,
            "why": self.why,
        }

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> State:
        """The state that `scope` made."""
        return cls(kept["exists"], kept["version"], kept["fields"], kept["why"])


ABSENT: Final = State(exists=False, version="absent")
"""A record that is not there. Its version is a tombstone, so that a delete can be taken back by itself."""


@dataclass(frozen=True, slots=True)
class Target:
    """One record that a call changes. *failure*: why its state could not be read."""

    name: str
    record: str
    keys: Json
    resource: str
    change: int
    listed: bool = False
    item: Any = None
    before: State | None = None
    after: State | None = None
    now: State | None = None
    failure: str | None = None

    @property
    def changed(self) -> bool:
        """Whether the call left it otherwise than it found it, as far as both were read."""
        if self.before is None or self.after is None:
            return True
        return (self.before.exists, self.before.fields) != (self.after.exists, self.after.fields)

    def scope(self) -> Json:
        """The record as expressions see it in `records`."""
        states = {"before": self.before, "after": self.after, "now": self.now}
        return {"keys": self.keys, "item": self.item} | {
            name: state.scope() for name, state in states.items() if state is not None
        }

    def kept(self) -> Json:
        """The record as a compensation token keeps it."""
        return {
            "name": self.name,
            "record": self.record,
            "keys": self.keys,
            "resource": self.resource,
            "change": self.change,
            "listed": self.listed,
            "item": self.item,
            "before": None if self.before is None else self.before.scope(),
            "after": None if self.after is None else self.after.scope(),
        }

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Target:
        """The record that `kept` made."""
        states = {name: None if kept[name] is None else State.of(kept[name]) for name in ("before", "after")}
        return cls(**{**kept, **states})


# --- records ----------------------------------------------------------------------------------------------------------


def state_of(record: Record, scope: Scope) -> State:
    """The state in what the reads of *record* found. Raises `ExpressionFailed`, also for fields that are no object."""
    if not expressions.holds(record.exists, scope):
        return ABSENT
    fields = expressions.fill(record.fields, scope)
    if not isinstance(fields, dict):
        raise ExpressionFailed(str(record.fields), "the fields of a record are a map")
    missing = [name for name in record.relative if name not in fields]
    if missing:
        raise ExpressionFailed(str(record.fields), f"the relative field {missing[0]} is not among the fields")
    if record.version is None:
        version: Any = fingerprint({name: value for name, value in fields.items() if name not in record.relative})
    else:
        version = expressions.evaluate(record.version, scope)
        if not isinstance(version, str | int) or isinstance(version, bool) or version == "":
            raise ExpressionFailed(record.version, f"a version is text or a number, and this is {version!r:.60}")
    why = next(
        (
            expressions.fill_text(state.why, scope, expressions.plain_text)
            for state in record.unrestorable
            if expressions.holds(state.when, scope)
        ),
        None,
    )
    return State(True, str(version), fields, why)


def named(manifest: Manifest, reference: Reference | Change, scope: Scope) -> list[tuple[str, Json, Any]]:
    """The records that *reference* names: URI, keys and item of each. Raises `ExpressionFailed`."""
    items: list[Any] = [None]
    if reference.each is not None:
        found = expressions.evaluate(reference.each, scope)
        if not isinstance(found, list):
            raise ExpressionFailed(reference.each, "`each` goes over a list")
        items = found
    template = manifest.records[reference.record].uri
    records: dict[str, tuple[str, Json, Any]] = {}
    for item in items:
        here = scope if reference.each is None else {**scope, "item": item}
        keys = {
            name: expressions.plain_text(expressions.fill(value, here), str(value))
            for name, value in reference.keys.items()
        }
        try:
            uri = uris.expand(template, keys)
        except ValueError as error:
            raise ExpressionFailed(str(dict(reference.keys)), str(error)) from error
        records.setdefault(uri, (uri, keys, item))
    return list(records.values())


def targets_of(manifest: Manifest, operation: Operation, index: int, scope: Scope) -> list[Target]:
    """The records of the change at *index*, not read yet. Raises `ExpressionFailed`."""
    change = operation.changes[index]
    return [
        Target(change.name, change.record, keys, uri, index, change.each is not None, item)
        for uri, keys, item in named(manifest, change, scope)
    ]


def reads_only(operation: Operation, arguments: Mapping[str, Any]) -> bool:
    """Whether a call with these *arguments* changes nothing; where that cannot be told it is a write."""
    try:
        return expressions.holds(operation.reads, {"arguments": arguments})
    except ExpressionFailed:
        return False


def needs(change: Change | Reference) -> frozenset[str]:
    """What beside the arguments has to be known for the keys of *change*."""
    sources = [*expressions.expressions_in(change.keys), *([change.each] if change.each is not None else [])]
    return frozenset(name for source in sources for name in expressions.names_in(source)) & {
        "reads",
        "records",
        "result",
    }


def records_in(operation: Operation, targets: Sequence[Target]) -> Json:
    """`records`, as expressions see it: one record, or a list of them where its change has `each`."""
    scope: Json = {}
    for index, change in enumerate(operation.changes):
        found = [target.scope() for target in targets if target.change == index]
        if change.each is not None:
            scope[change.name] = found
        elif found:
            scope[change.name] = found[0]
    return scope


def record_named(manifest: Manifest, resource: str) -> tuple[str, Json] | None:
    """The kind and the keys of the record that *resource* names; None where it is none of this manifest's."""
    for name, record in manifest.records.items():
        keys = uris.match(record.uri, resource)
        if keys is not None:
            return name, keys
    return None


def foretold(operation: Operation, targets: Sequence[Target], scope: Scope) -> list[Target] | None:
    """The records as the call is to leave them, in `after`; None where its manifest does not say. Raises `ExpressionFailed`."""
    if not operation.foretells:
        return None
    left: list[Target] = []
    for target in targets:
        template = operation.changes[target.change].leaves
        fields = expressions.fill(template, {**scope, **target_scope(target)})
        if fields is not None and not isinstance(fields, dict):
            raise ExpressionFailed(str(template), "what is left of a record is a map, or null")
        left.append(replace(target, after=ABSENT if fields is None else State(True, None, fields)))
    return left


def is_left_as(foretold: Target, now: Target) -> bool:
    """Whether the record stands exactly as foretold, and otherwise than before: then the call has happened (J7)."""
    assert foretold.after is not None
    after = now.after
    same = after is not None and (after.exists, after.fields) == (foretold.after.exists, foretold.after.fields)
    return same and now.failure is None and now.changed


def effects_of(manifest: Manifest, operation: Operation, targets: Sequence[Target]) -> list[Json]:
    """The effects on *targets*, whose states before and after are known or foretold."""
    return [
        _effect(manifest.records[target.record], target, operation, first=index == 0)
        for index, target in enumerate(targets)
        if target.changed
    ]


# --- the way back -----------------------------------------------------------------------------------------------------


def foreseen(operation: Operation, targets: Sequence[Target], scope: Scope) -> UndoTemplate:
    """How the call could be taken back as far as its pre-state tells, for whoever decides about it (J4, J8).

    Where only the result can tell, what the operation declares stays.
    """
    chosen: list[tuple[Branch, Scope]] = []
    for branches, here in _ways(operation, targets, scope):
        try:
            chosen.append((_chosen(branches, here), here))
        except ExpressionFailed:
            if any(_LATE & expressions.names_in(branch.when) for branch in branches):
                return template_of(operation)
            raise
    if not chosen:
        return template_of(operation)
    kind, told, why = _said(chosen, early=True)
    return UndoTemplate(
        kind=kind,
        via=operation.via,
        window=operation.window,
        undo_authority=operation.undo_authority,
        side_effects=told,
        why=why,
    )


def template_of(operation: Operation) -> UndoTemplate:
    """How calls of *operation* can be taken back, before anything is known of one."""
    branches = operation.branches
    compensating = [branch for branch in branches if branch.level in ("full", "partial")]
    said = [*_losses(compensating), *(text for branch in branches for text in branch.side_effects)]
    return UndoTemplate(
        kind="compensate" if compensating else "none",
        via=operation.via,
        window=operation.window,
        undo_authority=operation.undo_authority,
        side_effects=[text for text in dict.fromkeys(said) if "${" not in text],
        why=None if compensating else "; ".join(_why(branch) for branch in branches if "${" not in (branch.why or "")),
    )


def concluded(
    manifest: Manifest, hash_: str, name: str, targets: Sequence[Target], scope: Scope, uses: Sequence[str]
) -> Json:
    """The declaration of a call that was carried out: effects as they were read, and its undo with its token (J8, G7).

    Raises `ExpressionFailed`.
    """
    operation = manifest.operations[name]
    changed = [target for target in targets if target.changed]
    effects = [
        _effect(manifest.records[target.record], target, operation, first=index == 0)
        for index, target in enumerate(changed or targets[:1])
    ]
    if uses:
        if not effects:
            effects = [{"uses": list(uses)}]
        else:
            effects[0]["uses"] = list(uses)
    meta: Json = {"effects": effects} if effects else {}
    unread = next((target for target in targets if target.failure is not None), None)
    if unread is not None:
        reason = f"{unread.resource} could not be read: {unread.failure}"
        return meta | {"undo": {"kind": "unknown", "via": operation.via, "why": reason}}
    ways = [
        (number, _chosen(branches, here), here)
        for number, (branches, here) in zip(_numbers(operation, targets), _ways(operation, targets, scope), strict=True)
        if number is None or targets[number].changed
    ]
    if targets and not changed:
        return meta | {"undo": _offer(operation, hash_, name, targets, scope, [], effects, "it changed nothing")}
    kind, told, why = _said([(branch, here) for _, branch, here in ways])
    if kind == "none":
        return meta | {"undo": {"kind": "none", "via": operation.via, "sideEffects": told, "why": why}}
    undo = _offer(operation, hash_, name, targets, scope, [(n, branch) for n, branch, _ in ways], effects, why)
    return meta | {"undo": {**undo, "sideEffects": told}}


def wanted_fields(target: Target, fields: Sequence[str] | None, *, force: bool) -> Json | None:
    """What the record's fields are to be after the undo; None where it is not to exist.

    With *fields* only those come back; over somebody else's edit (*force*) only what the call itself changed (G8).
    """
    before, after, now = target.before, target.after, target.now
    assert before is not None
    if not before.exists or before.fields is None:
        return None
    if now is None or not now.exists or now.fields is None or (fields is None and not force):
        return before.fields
    own = fields
    if own is None:
        own = [change.field for change in changes_between(before.fields, after.fields if after is not None else None)]
    kept = {name: value for name, value in now.fields.items() if name not in own}
    return {**kept, **{name: before.fields[name] for name in own if name in before.fields}}


def is_restored(record: Record, target: Target) -> bool:
    """Whether the record, as it is now, is as it was before the call; never for amounts that are taken back by difference."""
    before, now = target.before, target.now
    if before is None or now is None or record.relative:
        return False
    if before.exists != now.exists:
        return False
    loose = set(record.may_change)
    return _strict(before.fields, loose) == _strict(now.fields, loose)


def difference_missed(record: Record, target: Target, then: State) -> str | None:
    """What is wrong with a relative field after the undo: it has to differ from just before by what the call had added."""
    before, after, now = target.before, target.after, target.now
    if not record.relative or before is None or after is None or now is None:
        return None
    if not (before.exists and after.exists and now.exists and then.exists):
        return None
    minus = FUNCTIONS["minus"]
    for name in record.relative:
        states = [state.fields or {} for state in (before, after, now, then)]
        was, left, found, is_ = (fields[name] for fields in states)
        if minus(is_, found) != minus(was, left):
            return f"{name} went from {found} to {is_}, and the call had changed it by {minus(left, was)}"
    return None


def _strict(fields: Json | None, loose: set[str]) -> Json:
    return {name: value for name, value in (fields or {}).items() if name not in loose}


def _ways(operation: Operation, targets: Sequence[Target], scope: Scope) -> list[tuple[list[Branch], Scope]]:
    found: list[tuple[list[Branch], Scope]] = []
    for number in _numbers(operation, targets):
        target = targets[number] if number is not None else (targets[0] if targets else None)
        branches = operation.undo if number is None else operation.changes[targets[number].change].undo
        found.append((branches or [], {**scope, **target_scope(target)}))
    return found


def _numbers(operation: Operation, targets: Sequence[Target]) -> list[int | None]:
    """One way for the whole call (None), or one for each record that has its own."""
    if operation.undo is not None:
        return [None]
    return [index for index, target in enumerate(targets) if operation.changes[target.change].undo is not None]


def target_scope(target: Target | None) -> Json:
    """What a way back calls by short names: the record's own keys and states."""
    return {} if target is None else target.scope()


def _chosen(branches: Sequence[Branch], scope: Scope) -> Branch:
    """The first way back that fits. A state that cannot be given back takes only a way that speaks of `restorable`."""
    why = (scope.get("before") or {}).get("why")
    for branch in branches:
        if (why is None or "restorable" in branch.when) and expressions.holds(branch.when, scope):
            return branch
    return _NO_WAY if why is None else Branch(level="none", why=why.replace("${", "$${"))


def _said(chosen: Sequence[tuple[Branch, Scope]], *, early: bool = False) -> tuple[UndoKind, list[str], str | None]:
    """Kind, side effects and losses, and why, of ways back taken together."""
    told: list[str] = []
    whys: list[str] = []
    kinds: set[UndoKind] = set()
    for branch, scope in chosen:
        kinds.add("compensate" if branch.level in ("full", "partial") else "none")

        def text(template: str, scope: Scope = scope) -> str:
            try:
                return expressions.fill_text(template, scope, expressions.plain_text)
            except ExpressionFailed:
                if early and any(_LATE & expressions.names_in(s) for s in expressions.expressions_in(template)):
                    return template
                raise

        told += [f"Not given back: {text(loss)}" for loss in branch.losses]
        told += [text(effect) for effect in branch.side_effects]
        if branch.why is not None:
            said = text(branch.why)
            whys.append(f"by hand: {said}" if branch.level == "manual" else said)
        if branch.level in ("manual", "none"):
            told.append(f"Not given back: {whys[-1]}")
    if kinds == {"none"}:
        told = [text for text in told if not text.startswith("Not given back: ")]
    why = "; ".join(dict.fromkeys(whys)) or None
    return "compensate" if "compensate" in kinds else "none", list(dict.fromkeys(told)), why


def _why(branch: Branch) -> str:
    return f"by hand: {branch.why}" if branch.level == "manual" else branch.why or ""


def _losses(branches: Sequence[Branch]) -> list[str]:
    return [f"Not given back: {loss}" for branch in branches for loss in branch.losses]


def _offer(
    operation: Operation,
    hash_: str,
    name: str,
    targets: Sequence[Target],
    scope: Scope,
    ways: Sequence[tuple[int | None, Branch]],
    effects: Sequence[Json],
    why: str | None,
) -> Json:
    kept = [replace(target, after=target.after or ABSENT) for target in targets]
    token: Json = {
        "takeback": 1,
        "manifest": hash_,
        "operation": name,
        "records": [target.kept() for target in kept],
        "ways": [
            {"record": number, "branch": branch.model_dump(mode="json", by_alias=True)} for number, branch in ways
        ],
    }
    used = {
        used
        for _, branch in ways
        for source in expressions.expressions_in(branch.model_dump(by_alias=True))
        for used in expressions.names_in(source)
    } | {
        used
        for _, branch in ways
        for step in branch.steps
        for source in [step.when, step.each, step.fails, step.conflict, step.value]
        if source is not None
        for used in expressions.names_in(source)
    }
    token |= {given: scope[given] for given in ("arguments", "reads", "result") if given in used and given in scope}
    versions = {
        target.resource: target.after.version
        for target in targets
        if target.changed and target.after is not None and target.after.version is not None
    }
    undo: Json = {
        "kind": "compensate",
        "via": operation.via,
        "compensationToken": json.dumps(token).decode(),
        "why": why,
    }
    if effects and effects[0].get("version") is not None:
        undo["ifVersion"] = effects[0]["version"]
    if len(versions) > 1:
        undo["ifVersions"] = versions
    return {key: value for key, value in undo.items() if value is not None}


def _effect(record: Record, target: Target, operation: Operation, *, first: bool) -> Json:
    before, after = target.before, target.after
    effect: Json = {"resource": target.resource, "mayChange": [*record.may_change, *record.relative]}
    if before is not None and before.exists:
        effect["before"] = {"version": before.version, "fields": before.fields or {}}
    if after is not None:
        effect["version"] = after.version
        if before is not None:
            effect["changes"] = [
                change.wire() for change in changes_between(before.fields, after.fields if after.exists else None)
            ]
    if first and operation.side_effects:
        effect["sideEffects"] = list(operation.side_effects)
    return {key: value for key, value in effect.items() if value is not None}
