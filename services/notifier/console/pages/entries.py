"""One entry with everything that the journal knows of it, and the settling of a doubt."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.routing import Route

from notifier.console.desk import Desk, Visit
from notifier.console.pages.campaigns import campaign_of
from notifier.console.speaker import Document


def routes(desk: Desk) -> list[Route]:
    """`/console/entries/{entry}`."""
    return [
        Route("/console/entries/{entry}", desk.page(_one)),
        Route("/console/entries/{entry}/resolution", desk.action(_resolve), methods=["POST"]),
    ]


async def _one(visit: Visit) -> Response:
    entry = await visit.api.get(f"/v1/entries/{visit.path('entry')}")
    named = {entry[name] for name in ("reverts", "revertedBy", "remedies", "corrects") if entry.get(name)}
    campaign, entries, windows = await asyncio.gather(
        campaign_of(visit, entry["campaign"]),
        visit.api.entries(named),
        visit.api.windows(entry["campaign"], [entry["id"]] if has_window(entry) else []),
    )
    return visit.render("entry.html", campaign=campaign, entry=entry, named=entries, window=windows.get(entry["id"]))


def has_window(entry: Document) -> bool:
    """Whether there is something to take back until some time, as far as the entry says."""
    is_change = entry["status"] == "committed" and entry["kind"] not in ("read", "reversal")
    return is_change and entry["undo"]["kind"] == "compensate" and entry["undo"]["undoBy"] is not None


async def _resolve(visit: Visit) -> Response:
    entry = visit.path("entry")
    await visit.api.post(
        f"/v1/entries/{entry}/resolution", {"outcome": visit.field("outcome"), "reason": visit.field("reason")}
    )
    return visit.go(f"/console/entries/{entry}", "settled")
