"""An operation as it was pinned, what its manifest makes of it for the arguments at hand, and what of a pin no longer holds.

Pure (J15).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from recorder.intake import expected_undo
from recorder.manifest import Checked, states
from recorder.manifest.expressions import ExpressionFailed
from recorder.manifest.model import Manifest
from recorder.resources import LONGEST, Resources, resources_of
from recorder.toolport.port import OWN, Operation
from takeback.extension import EXTENSION, Declared
from takeback.messages import campaign as messages
from takeback.messages.entry import Unresolved

Source = Literal["declared", "manifest", "none"]
"""Who says how an operation is taken back: its server, the operator's manifest, or nobody."""


@dataclass(frozen=True, slots=True)
class PinnedOperation:
    """An operation as the owner pinned it; *changed* says that the server now shows another definition of it."""

    server: str
    name: str
    declaration: Declared
    input_schema: dict[str, Any]
    pin: str
    source: Source
    exercised: bool
    can_observe: bool
    can_preview: bool
    changed: bool = False
    difference: str = ""
    definition: dict[str, Any] = field(default_factory=dict)
    manifest: Checked | None = None
    expected_undo: Mapping[str, Any] = field(init=False, compare=False)
    """What an entry says of its undo before the call has ended (J8)."""

    def __post_init__(self) -> None:
        undo = expected_undo(self.declaration).model_dump(mode="json", by_alias=True, exclude={"compensation_token"})
        object.__setattr__(self, "expected_undo", undo)

    def of(self, arguments: Mapping[str, Any]) -> PinnedOperation:
        """The operation as it is with these *arguments*: a manifest may say that some make a write a read (J15)."""
        return self if self.manifest is None else _narrowed(self, arguments)

    def resources(self, arguments: Mapping[str, Any]) -> Resources:
        """The records that a call with *arguments* changes and uses."""
        if self.manifest is None:
            return resources_of(self.declaration, arguments)
        return _resources_in(self.manifest.manifest, self.name, arguments)

    def described(self) -> dict[str, Any]:
        """The operation on the wire."""
        declared = self.declaration
        undo = messages.UndoDeclaration(**declared.undo.model_dump())
        return messages.Operation(
            operation=self.name,
            tier=declared.tier,
            undo=undo,
            source=self.source,
            exercised=self.exercised,
            pin=self.pin,
            read_only=declared.read_only,
            resource=declared.resource,
        ).wire()


def _narrowed(pinned: PinnedOperation, arguments: Mapping[str, Any]) -> PinnedOperation:
    """*pinned* with what its manifest says of these arguments: the effect may be chosen by one of them."""
    assert pinned.manifest is not None
    operation = pinned.manifest.manifest.operations[pinned.name]
    if not states.reads_only(operation, arguments):
        return pinned
    return replace(pinned, declaration=pinned.declaration.model_copy(update={"read_only": True}))


def _resources_in(manifest: Manifest, name: str, arguments: Mapping[str, Any]) -> Resources:
    """The record that the call changes first, and those it uses, as far as its arguments tell (J12, J19)."""
    operation = manifest.operations[name]
    scope = {"arguments": arguments}
    unresolved: list[Unresolved] = []
    uses: list[str] = []
    changes: str | None = None
    for index, use in enumerate(operation.uses):
        if states.needs(use):
            continue
        try:
            uses += [uri for uri, _, _ in states.named(manifest, use, scope)]
        except ExpressionFailed as error:
            unresolved.append(Unresolved(field=f"uses[{index}]", reason=str(error)))
    if operation.changes and not states.reads_only(operation, arguments) and not states.needs(operation.changes[0]):
        try:
            changes = next((uri for uri, _, _ in states.named(manifest, operation.changes[0], scope)), None)
        except ExpressionFailed as error:
            unresolved.append(Unresolved(field="resource", reason=str(error)))
    if changes is not None and len(changes) > LONGEST:
        unresolved.append(Unresolved(field="resource", reason=f"the resource is longer than {LONGEST} characters"))
        changes = None
    return Resources(changes, tuple(dict.fromkeys(use for use in uses if len(use) <= LONGEST)), tuple(unresolved))


def can_preview(name: str, tool: str | None, checked: Checked | None) -> bool:
    """Whether what a call would do can be shown: by the server's own dry run, or because its manifest foretells it (P7)."""
    operation = None if checked is None else checked.manifest.operations.get(name)
    if operation is not None:
        return operation.foretells
    return tool is not None and tool != OWN


def difference(pinned: Mapping[str, Any], seen: Operation | None) -> str:
    """What of a pinned definition no longer holds, in words for whoever is asked (J15)."""
    if seen is None:
        return "its tool server no longer has it"
    was, is_ = _manifest_in(pinned), _manifest_in(seen.definition)
    if was is not None and is_ is not None and was["hash"] == is_["hash"]:
        tools = [name for name, pin in was["tools"].items() if is_["tools"].get(name) != pin]
        if tools:
            gone = [name for name in tools if is_["tools"].get(name) is None]
            what = f"{', '.join(gone)} is gone" if gone else f"{', '.join(tools)} is no longer what it was"
            return f"its manifest no longer matches: {what}"
    parts = [
        name
        for name in ("description", "inputSchema", "outputSchema", "annotations", "_meta")
        if pinned.get(name) != seen.definition.get(name)
    ]
    return f"its {', '.join(parts)} changed" if parts else "its definition changed"


def _manifest_in(definition: Mapping[str, Any]) -> Any:
    part = (definition.get("_meta") or {}).get(EXTENSION)
    return part.get("manifest") if isinstance(part, Mapping) else None
