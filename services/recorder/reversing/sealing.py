"""The secret fields of effects, sealed where an entry keeps them and opened where they are compared: no I/O (J18)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from recorder.journal import CampaignKeys
from recorder.journal.vault import is_sealed

TOKEN_PATH = "undo.compensationToken"  # noqa: S105  where the token stands, not the token


def secret_fields(effects: Sequence[dict[str, Any]]) -> set[str]:
    """The fields that an entry's *effects* keep sealed: its reversal keeps them so too."""
    found: set[str] = set()
    for effect in effects:
        fields = (effect.get("before") or {}).get("fields") or {}
        found |= {name for name, value in fields.items() if is_sealed(value)}
        for change in effect.get("changes") or ():
            if is_sealed(change.get("old")) or is_sealed(change.get("new")):
                found.add(change["field"])
    return found


def sealed_effects(
    keys: CampaignKeys, entry: str, effects: Sequence[dict[str, Any]], secret: Collection[str]
) -> list[dict[str, Any]]:
    """*effects* as *entry* may keep them."""
    if not secret:
        return list(effects)
    return [
        {
            **effect,
            "before": keys.seal_fields(entry, f"effects[{index}].before", effect.get("before"), secret),
            "changes": [
                {
                    side: keys.seal(entry, f"effects[{index}].changes.{change['field']}.{side}", value)
                    if side in ("old", "new") and value is not None and change["field"] in secret
                    else value
                    for side, value in change.items()
                }
                for change in effect.get("changes") or ()
            ],
        }
        for index, effect in enumerate(effects)
    ]


def opened_effects(keys: CampaignKeys, entry: str, effects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The effects that *entry* keeps, with everything readable."""
    return [
        {
            **effect,
            "before": keys.unseal_fields(entry, f"effects[{index}].before", effect.get("before")),
            "changes": [
                {
                    side: keys.unseal_fields(entry, f"effects[{index}].changes.{change['field']}.{side}", value)
                    for side, value in change.items()
                }
                for change in effect.get("changes") or ()
            ],
        }
        for index, effect in enumerate(effects)
    ]
