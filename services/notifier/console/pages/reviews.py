"""Reviews: the queue as a countdown, and one run's review with its acknowledgement."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.routing import Route

from notifier.console.desk import Desk, Visit
from notifier.console.pages.campaigns import campaign_of


def routes(desk: Desk) -> list[Route]:
    """`/console/campaigns/{campaign}/reviews` and `/console/runs/{run}/review`."""
    return [
        Route("/console/campaigns/{campaign}/reviews", desk.page(_queue)),
        Route("/console/runs/{run}/review", desk.page(_one)),
        Route("/console/runs/{run}/review/acknowledgement", desk.action(_acknowledge), methods=["POST"]),
    ]


async def _queue(visit: Visit) -> Response:
    campaign = visit.path("campaign")
    found, queue = await asyncio.gather(
        campaign_of(visit, campaign),
        visit.api.get(f"/v1/campaigns/{campaign}/reviews", cursor=visit.query("cursor")),
    )
    return visit.render(
        "reviews.html",
        campaign=found,
        reviews=queue["items"],
        following=queue.get("next"),
        first=visit.query("cursor") is None,
    )


async def _one(visit: Visit) -> Response:
    review = await visit.api.get(f"/v1/runs/{visit.path('run')}/review")
    return visit.render("review.html", campaign=await campaign_of(visit, review["campaign"]), review=review)


async def _acknowledge(visit: Visit) -> Response:
    run = visit.path("run")
    await visit.api.post(f"/v1/runs/{run}/review/acknowledgement")
    return visit.go(f"/console/runs/{run}/review", "acknowledged")
