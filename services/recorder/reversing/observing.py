"""Looking at records through the tool servers' ports: many at once, each with its own answer or its own error (G4, G8)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from recorder.journal import JournalReader
from recorder.reversing.work import effects_of
from recorder.toolport.port import ToolPort, ToolPortError, ToolRefused, Unsupported
from takeback import json
from takeback.errors import Problem, words_of
from takeback.extension import Observation
from takeback.messages.entry import Entry


class Ports(Protocol):
    """Where ports to the tool servers of a campaign come from."""

    async def port(self, campaign: str, server: str) -> ToolPort:
        """An open port; raises `Problem` when there is no such server or it cannot be reached."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as it is now, or why it could not be seen; *never*: this server cannot show it at all."""

    observation: Observation | None = None
    error: str | None = None
    never: bool = False


class Observer:
    """Observes; each look ends by *deadline* seconds."""

    def __init__(self, reader: JournalReader, ports: Ports, deadline: float) -> None:
        self._reader = reader
        self._ports = ports
        self._deadline = deadline

    async def see(self, campaign: str, server: str, resource: str, entry: str | None = None) -> Seen:
        """One record; with *entry* also what became of the call that has it as its idempotency key."""
        try:
            port = await self._ports.port(campaign, server)
            async with asyncio.timeout(self._deadline):
                observation = await port.observe(resource, entry=entry, deadline=self._deadline)
            json.check(observation.fields)
        except (Unsupported, ToolRefused) as error:
            return Seen(error=str(error) or "The tool server cannot show records.", never=True)
        except ToolPortError as error:
            return Seen(error=words_of(error))
        except TimeoutError:
            return Seen(error=f"The tool server did not answer within {self._deadline:g} seconds.")
        except Problem as problem:
            return Seen(error=problem.detail)
        if observation.exists is None:
            why = "; ".join(f"{item.field}: {item.reason}" for item in observation.unresolved)
            return Seen(
                observation, error=f"The tool server's answer could not be read: {why or 'it does not say exists'}."
            )
        return Seen(observation)

    async def see_all(
        self, campaign: str, server: str, resources: Sequence[str], entry: str | None = None
    ) -> dict[str, Seen]:
        """Several records of one server, asked for at once; *entry* goes with the first."""
        seen = await asyncio.gather(
            *(self.see(campaign, server, name, entry if index == 0 else None) for index, name in enumerate(resources))
        )
        return dict(zip(resources, seen, strict=True))

    async def items(self, campaign: str, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answer of ``rpc.recorder.observe``: an item without a resource stands for all records of its entry."""
        wanted = [target for item in items for target in await self._targets(campaign, item)]
        distinct = list(dict.fromkeys((server, resource) for _, server, resource in wanted if server and resource))
        seen = await asyncio.gather(*(self.see(campaign, server, resource) for server, resource in distinct))
        by_record = dict(zip(distinct, seen, strict=True))
        return [
            _wire(entry, resource, by_record.get((server or "", resource or ""))) for entry, server, resource in wanted
        ]

    async def _targets(self, campaign: str, item: Mapping[str, Any]) -> list[tuple[str, str | None, str | None]]:
        entry, resource, server = item["entry"], item.get("resource"), item.get("server")
        if resource is not None and server is not None:
            return [(entry, server, resource)]
        stored = await self._reader.entry(entry)
        if stored is None or stored.campaign != campaign:
            return [(entry, None, resource)]
        found = Entry.model_validate(stored.public)
        resources = [resource] if resource is not None else [effect.resource for effect in effects_of(found)]
        return [(entry, found.server, name) for name in resources]


def _wire(entry: str, resource: str | None, seen: Seen | None) -> dict[str, Any]:
    told = {"entry": entry, "resource": resource}
    if seen is None:
        return {**told, "error": "There is no such entry in this campaign."}
    if seen.observation is None or seen.error is not None:
        return {**told, "error": seen.error}
    found = seen.observation
    return {**told, "exists": found.exists, "version": found.version, "fields": found.fields}
