"""What an operation may say about the call that it is running."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Call:
    """One call of an operation, for the parameter named ``call``. *entry* is the journal's, *key* idempotency's."""

    entry: str | None = None
    key: str | None = None
    broadcasts: list[dict[str, Any]] = field(default_factory=list)
    uses: list[str] = field(default_factory=list)
    side_effects: list[str] = field(default_factory=list)
    may_change: list[str] = field(default_factory=list)

    def broadcast(self, payload: dict[str, Any]) -> None:
        """Record that *payload* was sent to the application's clients, so that the entry holds it (J5)."""
        self.broadcasts.append(payload)

    def used(self, resource: str) -> None:
        """Declare that the call read *resource*: what is taken back there later concerns this call (J12, G1)."""
        self.uses.append(resource)

    def side_effect(self, text: str) -> None:
        """Tell what happened beside the record, in words for a person (during a revert: what the undo caused)."""
        self.side_effects.append(text)

    def may_change_later(self, field_name: str) -> None:
        """Declare that the field changes by itself: neither a preview nor an undo is held to it (P7)."""
        self.may_change.append(field_name)
