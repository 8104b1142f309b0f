"""Entries as they are read: redacted, and for a person with authority over them with their secrets opened (J18)."""

from __future__ import annotations

from typing import Any, Final

from recorder.campaigns import Campaigns
from recorder.journal.reading import JournalReader, StoredEntry
from recorder.journal.vault import CampaignKeys, Vault, is_sealed
from recorder.runs import Runs
from takeback.auth import Caller
from takeback.authority import authority_over
from takeback.errors import not_found

PAGE: Final = 200
"""The most entries of a run that one answer holds."""
_SEALED_PARTS: Final = ("arguments", "result", "snapshot")


class Entries:
    """Questions about single entries and a run's."""

    def __init__(self, reader: JournalReader, vault: Vault, campaigns: Campaigns, runs: Runs) -> None:
        self._reader = reader
        self._vault = vault
        self._campaigns = campaigns
        self._runs = runs

    async def get(self, entry: str, caller: Caller) -> dict[str, Any]:
        """The entry; secrets are opened for a person who may take it back, the compensation token for nobody."""
        stored = await self._reader.entry(entry)
        if stored is None:
            raise not_found()
        role = await self._campaigns.require(stored.campaign, caller)
        kept = stored.body["entry"]
        authority = authority_over(caller.sub, role, kept["principal"], kept["undo"].get("undoAuthority"))
        public = stored.public
        if not caller.is_human or authority is None:
            return public
        return {**public, **_opened(stored, await self._vault.keys(stored.campaign))}

    async def of_run(
        self, run: str, caller: Caller, cursor: int, limit: int = PAGE, *, newest_first: bool = False
    ) -> dict[str, Any]:
        """A page of a run's entries from *cursor* on, in the order of their intents, or in the opposite one."""
        found = await self._runs.get(run, caller)
        if newest_first:
            entries = await self._reader.newest_of_run(found.id, cursor or None, limit + 1)
        else:
            entries = await self._reader.entries_of_run(found.id, cursor, limit + 1)
        page: dict[str, Any] = {"items": [stored.public for stored in entries[:limit]]}
        return page if len(entries) <= limit else {**page, "next": str(entries[limit - 1].label)}


def _opened(stored: StoredEntry, keys: CampaignKeys) -> dict[str, Any]:
    entry = stored.body["entry"]
    opened: dict[str, Any] = {part: keys.unseal_fields(stored.id, part, entry[part]) for part in _SEALED_PARTS}
    effects = [_opened_effect(stored.id, index, effect, keys) for index, effect in enumerate(entry["effects"])]
    return {**opened, "effects": effects, "effect": effects[0] if effects else None}


def _opened_effect(entry: str, index: int, effect: dict[str, Any], keys: CampaignKeys) -> dict[str, Any]:
    path = f"effects[{index}]"
    changes = [
        {
            side: keys.unseal(entry, f"{path}.changes.{change['field']}.{side}", value)
            if side in ("old", "new") and is_sealed(value)
            else value
            for side, value in change.items()
        }
        for change in effect["changes"]
    ]
    return {**effect, "before": keys.unseal_fields(entry, f"{path}.before", effect["before"]), "changes": changes}
