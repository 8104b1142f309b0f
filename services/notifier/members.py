"""Who is who in a campaign, as the journal's events have told so far."""

from __future__ import annotations

from typing import Literal

import asyncpg

from takeback.auth import Caller
from takeback.errors import not_found
from takeback.messages.campaign import Role

Standing = Role | Literal["agent"]
"""What a caller is in a campaign; `agent`: no member, but an agent that the campaign has named."""

_STANDING = """
select coalesce(
    (select role from members where campaign = $1 and sub = $2),
    (select 'agent' from agents where campaign = $1 and name = $2 and $3 = 'agent')
)
"""


class Members:
    """Asks the projection; bring it up to date first (`Inbox.catch_up`)."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def standing(self, campaign: str, caller: Caller) -> Standing | None:
        """What *caller* is in *campaign*; None for a stranger."""
        found: Standing | None = await self._pool.fetchval(_STANDING, campaign, caller.sub, caller.kind)
        return found

    async def require(self, campaign: str, caller: Caller) -> Standing:
        """The same; raises the one 404 for a stranger (G7)."""
        standing = await self.standing(campaign, caller)
        if standing is None:
            raise not_found()
        return standing
