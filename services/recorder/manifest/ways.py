"""What came of a call and which way leads back, as its manifest says: pure.

Nothing here asks a server: states and results come in as values, and what is to be done goes out as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from recorder.intake import changes_between
from recorder.manifest import expressions
from recorder.manifest.expressions import ExpressionFailed, Scope
from recorder.manifest.model import Branch, Manifest, Operation, Record
from recorder.manifest.states import ABSENT, Target, target_scope
from takeback import json
from takeback.extension import UndoTemplate
from takeback.messages.entry import UndoKind

Json = dict[str, Any]
_LATE: Final = frozenset({"result", "after"})
_NO_WAY: Final = Branch(level="none", why="its manifest describes no way back from this state")


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


def effects_of(manifest: Manifest, operation: Operation, targets: Sequence[Target]) -> list[Json]:
    """The effects on *targets*, whose states before and after are known or foretold."""
    return [
        _effect(manifest.records[target.record], target, operation, first=index == 0)
        for index, target in enumerate(targets)
        if target.changed
    ]


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
