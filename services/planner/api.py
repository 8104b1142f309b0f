"""The planner over HTTP: plans, decisions, one-call undo, graph and links (contract.md, Planner)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from planner.confirming import Confirming
from planner.decisions import Decisions
from planner.fact import in_order
from planner.planning import Planning
from planner.undoing import Undoing
from takeback.attempt import Attempt
from takeback.auth import Caller, Verifier
from takeback.errors import not_found
from takeback.messages.base import Nothing
from takeback.messages.plan import PlanDecision, PlanRequest, UndoRequest
from takeback.web import answer, checked_id, read, read_json, validate

_LONGEST_WAIT_SECONDS = 120
Wait = Annotated[float, Query(ge=0)]
Skip = Annotated[int, Query(ge=0, le=10**9)]
Limit = Annotated[int | None, Query(ge=1, le=1000)]


def router(
    verifier: Verifier, planning: Planning, decisions: Decisions, undoing: Undoing, confirming: Confirming
) -> APIRouter:
    """The door; each route parses, asks a use case and answers."""
    routes = APIRouter()

    async def caller(request: Request) -> Caller:
        return await verifier.caller(request.headers.get("authorization"))

    @routes.post("/v1/campaigns/{campaign}/plans")
    async def propose(campaign: str, request: Request) -> Response:
        who, body = await caller(request), await read_json(request)
        wanted, attempt = validate(body, PlanRequest), Attempt.in_request(request, who, body)
        return answer((await planning.propose(checked_id(campaign), who, wanted, attempt)).wire(), 201)

    @routes.get("/v1/plans/{plan}")
    async def plan_of(plan: str, request: Request) -> Response:
        return answer((await planning.seen(checked_id(plan), await caller(request))).plan.wire())

    @routes.get("/v1/plans/{plan}/record")
    async def record_of(plan: str, request: Request) -> Response:
        state = await planning.seen(checked_id(plan), await caller(request))
        if state.record is None:
            raise not_found()
        return answer(state.record.wire())

    @routes.post("/v1/plans/{plan}/decision")
    async def decide(plan: str, request: Request, wait: Wait = 0) -> Response:
        who, body = await caller(request), await read_json(request)
        decision, attempt = validate(body, PlanDecision), Attempt.in_request(request, who, body)
        state = await decisions.decide(checked_id(plan), who, decision, min(wait, _LONGEST_WAIT_SECONDS), attempt)
        record = state.record.wire() if state.record is not None else None
        return answer({"plan": state.plan.wire(), "record": record}, 200 if state.ended else 202)

    @routes.post("/v1/campaigns/{campaign}/interactions/{interaction}/undo")
    async def undo(campaign: str, interaction: str, request: Request) -> Response:
        who, body = await caller(request), await read_json(request)
        wanted, attempt = validate(body, UndoRequest), Attempt.in_request(request, who, body)
        undone = await undoing.undo(checked_id(campaign), checked_id(interaction), who, wanted, attempt)
        return answer(undone.wire(), 200 if undone.finished else 202)

    @routes.get("/v1/runs/{run}/graph")
    async def graph(run: str, request: Request, skip: Skip = 0, limit: Limit = None) -> Response:
        facts, edges = await planning.graph_seen(checked_id(run), await caller(request), skip, limit)
        return answer(
            {
                "entries": [fact.entry.wire() for fact in in_order(facts)],
                "links": [edge.link().wire() for edge in edges],
            }
        )

    @routes.post("/v1/links/{link}/confirm")
    async def confirm(link: str, request: Request) -> Response:
        who = await caller(request)
        await read(request, Nothing)  # confirming again changes nothing, so a key has nothing to keep
        return answer((await confirming.confirm(checked_id(link), who)).wire())

    return routes
