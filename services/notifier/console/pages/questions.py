"""Questions of the journal, with charts (U3)."""

from __future__ import annotations

import asyncio
from itertools import groupby
from operator import itemgetter

from starlette.responses import Response
from starlette.routing import Route

from notifier.console.desk import Desk, Visit
from notifier.console.pages.campaigns import campaign_of


def routes(desk: Desk) -> list[Route]:
    """`/console/campaigns/{campaign}/questions`."""
    return [Route("/console/campaigns/{campaign}/questions", desk.page(_all))]


async def _all(visit: Visit) -> Response:
    campaign = visit.path("campaign")
    asked = f"/v1/campaigns/{campaign}/questions"
    found, calls, reversals, reviews = await asyncio.gather(
        campaign_of(visit, campaign),
        visit.api.get(f"{asked}/calls"),
        visit.api.get(f"{asked}/reversals"),
        visit.api.maybe(f"{asked}/reviews"),
    )
    by_operation = groupby(calls["items"], itemgetter("server", "operation"))
    operations = [(server, operation, list(models)) for (server, operation), models in by_operation]
    operations.sort(key=lambda one: -sum(model["calls"] for model in one[2]))
    return visit.render(
        "questions.html",
        campaign=found,
        calls=calls,
        operations=operations,
        most=max((item["calls"] for item in calls["items"]), default=0),
        reversals=reversals,
        reviews=reviews,
    )
