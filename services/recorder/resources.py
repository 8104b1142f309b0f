"""Which records a call changes and uses: URI templates over its arguments (RFC 6570, simple expansion). Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from takeback.extension import Declared
from takeback.messages.campaign import Serialize
from takeback.messages.entry import Unresolved
from takeback.resource_names import Nameless, expand

LONGEST: Final = 1500
"""Characters of a resource that the journal can index and that a server may have to read back."""


class Resources(NamedTuple):
    """The record that the call changes (None: unknown), those it uses, and the templates that named nothing (J11).

    *others*: what it changes beside, where that is known before the call.
    """

    changes: str | None = None
    uses: tuple[str, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def changed(self) -> list[str]:
        """Every record that the call is known to change."""
        return [*self.others] if self.changes is None else [self.changes, *self.others]

    def beside(self, names: Iterable[str]) -> Resources:
        """The same, with the records called *names* among those that the call changes."""
        found = dict.fromkeys([*self.others, *(name for name in names if len(name) <= LONGEST)])
        found.pop(self.changes or "", None)
        return self if len(found) == len(self.others) else self._replace(others=tuple(found))


def resources_of(declared: Declared, arguments: Mapping[str, Any]) -> Resources:
    """The resources of a call of an operation so *declared*. What a read names as its resource, it uses (J12)."""
    if declared.resource is None and not declared.uses:
        return _NOTHING
    unresolved: list[Unresolved] = []
    target = _expanded("resource", declared.resource, arguments, unresolved)
    uses = [
        used
        for index, template in enumerate(declared.uses)
        if (used := _expanded(f"uses[{index}]", template, arguments, unresolved)) is not None
    ]
    if declared.read_only and target is not None:
        uses.insert(0, target)
        target = None
    return Resources(target, tuple(dict.fromkeys(uses)), tuple(unresolved))


def serial_key_of(serialize: Serialize, campaign: str, run: str, resource: str | None) -> str | None:
    """What the call is serialized by: one writer per key at a time (J19); None where the campaign wants none.

    An operation whose record is unknown takes the campaign's key where records are the keys.
    """
    match serialize:
        case "campaign":
            return campaign
        case "run":
            return f"{campaign}/{run}"
        case "none":
            return None
        case "resource" if resource is None:
            return campaign
        case "resource":
            return f"{campaign}|{hashlib.sha256(resource.encode()).hexdigest()}"


def _expanded(
    name: str, template: str | None, arguments: Mapping[str, Any], unresolved: list[Unresolved]
) -> str | None:
    if template is None:
        return None
    try:
        expanded = expand(template, arguments)
    except Nameless as error:
        unresolved.append(Unresolved(field=name, reason=f"the argument {error}"))
        return None
    if len(expanded) > LONGEST:
        unresolved.append(Unresolved(field=name, reason=f"the resource is longer than {LONGEST} characters"))
        return None
    return expanded


_NOTHING: Final = Resources()
