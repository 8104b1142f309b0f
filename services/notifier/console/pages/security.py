"""The security log: who tried what without the authority for it."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.routing import Route

from notifier.console.desk import Desk, Visit
from notifier.console.pages.campaigns import campaign_of


def routes(desk: Desk) -> list[Route]:
    """`/console/campaigns/{campaign}/security`, for owners: the API refuses everybody else."""
    return [Route("/console/campaigns/{campaign}/security", desk.page(_log))]


async def _log(visit: Visit) -> Response:
    campaign = visit.path("campaign")
    found, page = await asyncio.gather(
        campaign_of(visit, campaign),
        visit.api.get(f"/v1/campaigns/{campaign}/security-log", cursor=visit.query("cursor")),
    )
    return visit.render("security.html", campaign=found, items=page["items"], following=page.get("next"))
