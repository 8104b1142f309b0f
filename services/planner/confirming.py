"""A person says that a link is real: who and when is recorded, in the journal (G2)."""

from __future__ import annotations

from planner.links import entry_of_link
from planner.planning import Planning
from takeback.auth import Caller
from takeback.errors import human_required, not_found
from takeback.inbox import Inbox
from takeback.messages.plan import Link
from takeback.rpc import Rpc
from takeback.subjects import RPC_APPEND


class Confirming:
    """Finds a link by its id and has the confirmation appended."""

    def __init__(self, planning: Planning, inbox: Inbox, rpc: Rpc) -> None:
        self._planning = planning
        self._inbox = inbox
        self._rpc = rpc

    async def confirm(self, link: str, caller: Caller) -> Link:
        """The link as it is now, confirmed; confirming it again changes nothing. Raises `Problem` 403 and 404."""
        entry = entry_of_link(link)
        campaign = await self._planning.store.campaign_of_entry(entry) if entry is not None else None
        role = await self._planning.store.require(campaign, caller)
        assert campaign is not None
        if not caller.is_human or role is None:
            raise human_required("confirm a link")
        await self._inbox.catch_up(campaign)
        found = await self._find(campaign, link)
        if found.source == "confirmed":
            return found
        await self._rpc.request(
            RPC_APPEND,
            {
                "id": f"{link}-ok",
                "type": "link.confirmed",
                "campaign": campaign,
                "by": {"sub": caller.sub, "kind": caller.kind},
                "body": {"link": link, "entry": found.entry, "dependsOn": found.depends_on},
            },
        )
        await self._inbox.catch_up(campaign)
        return await self._find(campaign, link)

    async def _find(self, campaign: str, link: str) -> Link:
        for fact in await self._planning.store.facts(campaign, [entry_of_link(link) or ""]):
            _, edges = await self._planning.graph(campaign, fact.entry.run)
            for edge in edges:
                if edge.entry == fact.id and (found := edge.link()).id == link:
                    return found
        raise not_found()
