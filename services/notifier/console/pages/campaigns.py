"""The first page (your campaigns), and one campaign: its runs, its people, what waits."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.routing import Route

from notifier.console.desk import Desk, Visit
from notifier.console.speaker import Document


def routes(desk: Desk) -> list[Route]:
    """`/` and `/console/campaigns/{campaign}`."""
    return [
        Route("/", desk.page(_yours)),
        Route("/console/campaigns/{campaign}", desk.page(_one)),
    ]


async def campaign_of(visit: Visit, campaign: str) -> Document:
    """The campaign as its pages' heading needs it: with the visitor's `role`."""
    found = await visit.api.get(f"/v1/campaigns/{campaign}")
    role = next((member["role"] for member in found["members"] if member["sub"] == visit.session.sub), None)
    return {**found, "role": role}


async def _yours(visit: Visit) -> Response:
    page = await visit.api.get("/v1/campaigns", cursor=visit.query("cursor"))
    return visit.render("campaigns.html", campaigns=page["items"], following=page.get("next"))


async def _one(visit: Visit) -> Response:
    campaign = visit.path("campaign")
    found, (runs, queue), approvals = await asyncio.gather(
        campaign_of(visit, campaign),
        _runs(visit, campaign),
        visit.api.get(f"/v1/campaigns/{campaign}/approvals", status="pending"),
    )
    return visit.render(
        "campaign.html",
        campaign=found,
        runs=runs["items"],
        following=runs.get("next"),
        windows={review["run"]: review for review in queue["items"]},
        waiting=len(approvals["items"]),
    )


async def _runs(visit: Visit, campaign: str) -> tuple[Document, Document]:
    """A page of the campaign's runs, and what of them can still be taken back."""
    runs = await visit.api.get(f"/v1/campaigns/{campaign}/runs", cursor=visit.query("cursor"))
    names = [run["id"] for run in runs["items"]]
    queue = await visit.api.get(f"/v1/campaigns/{campaign}/reviews", run=names) if names else {"items": []}
    return runs, queue
