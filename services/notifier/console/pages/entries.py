"""One entry with everything that the journal knows of it, and the settling of a doubt."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from notifier.console.desk import Desk, Visit
from notifier.console.pages.campaigns import campaign_of


def routes(desk: Desk) -> list[Route]:
    """`/console/entries/{entry}`."""
    return [
        Route("/console/entries/{entry}", desk.page(_one)),
        Route("/console/entries/{entry}/resolution", desk.action(_resolve), methods=["POST"]),
    ]


async def _one(visit: Visit) -> Response:
    entry = await visit.api.get(f"/v1/entries/{visit.path('entry')}")
    named = {entry[name] for name in ("reverts", "revertedBy", "remedies", "corrects") if entry.get(name)}
    return visit.render(
        "entry.html",
        campaign=await campaign_of(visit, entry["campaign"]),
        entry=entry,
        named=await visit.api.entries(named),
    )


async def _resolve(visit: Visit) -> Response:
    entry = visit.path("entry")
    await visit.api.post(
        f"/v1/entries/{entry}/resolution", {"outcome": visit.field("outcome"), "reason": visit.field("reason")}
    )
    return visit.go(f"/console/entries/{entry}", "settled")
