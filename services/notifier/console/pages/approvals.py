"""What waits for a person's word: the list, one call with its preview, and the decision."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from notifier.console import words
from notifier.console.desk import Desk, Visit
from notifier.console.pages.campaigns import campaign_of

_STATUSES = ("pending", "approved", "denied", "expired")


def routes(desk: Desk) -> list[Route]:
    """`/console/campaigns/{campaign}/approvals` and `/console/approvals/{approval}`."""
    return [
        Route("/console/campaigns/{campaign}/approvals", desk.page(_list)),
        Route("/console/approvals/{approval}", desk.page(_one)),
        Route("/console/approvals/{approval}/decision", desk.action(_decide), methods=["POST"]),
    ]


async def _list(visit: Visit) -> Response:
    campaign = visit.path("campaign")
    status = visit.query("status")
    status = status if status in _STATUSES else "pending"
    found, page = await asyncio.gather(
        campaign_of(visit, campaign),
        visit.api.get(f"/v1/campaigns/{campaign}/approvals", status=status, cursor=visit.query("cursor")),
    )
    return visit.render(
        "approvals.html",
        campaign=found,
        approvals=page["items"],
        entries=await visit.api.entries(approval["entry"] for approval in page["items"]),
        following=page.get("next"),
        status=status,
        statuses=_STATUSES,
    )


async def _one(visit: Visit) -> Response:
    approval = await visit.api.get(f"/v1/approvals/{visit.path('approval')}")
    entry = await visit.api.get(f"/v1/entries/{approval['entry']}")
    return visit.render(
        "approval.html",
        campaign=await campaign_of(visit, entry["campaign"]),
        approval=approval,
        entry=entry,
        effects=_effects(approval["preview"]),
    )


async def _decide(visit: Visit) -> Response:
    approval = visit.path("approval")
    body = {
        "decision": visit.field("decision"),
        "reason": visit.field("reason"),
        "category": visit.field("category") or None,
    }
    await visit.api.post(f"/v1/approvals/{approval}/decision", body)
    return visit.go(f"/console/approvals/{approval}", "decided")


def _effects(preview: Any) -> list[Any]:
    """What the tool's dry run foresaw, in whichever of its shapes it came."""
    if not isinstance(preview, dict):
        return []
    several = words.effects(preview)
    if not several and "changes" in preview:
        several = [preview]
    return [effect for effect in several if isinstance(effect, dict)]
