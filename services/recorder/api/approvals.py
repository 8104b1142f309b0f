"""Approvals over HTTP: what waits for a person, and the person's decision (P6; contract.md, Recorder)."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from recorder.api.keys import claim_in
from recorder.approvals import Approvals
from recorder.kept import KeptAnswers
from takeback.auth import Caller, Verifier
from takeback.errors import invalid
from takeback.messages.entry import ApprovalDecision
from takeback.web import answer, checked_id, read_json, validate

_STATUSES = ("pending", "approved", "denied", "expired")


def router(verifier: Verifier, approvals: Approvals, kept: KeptAnswers) -> APIRouter:
    """The door; each route parses, asks a use case and answers."""
    routes = APIRouter()

    async def caller(request: Request) -> Caller:
        return await verifier.caller(request.headers.get("authorization"))

    @routes.get("/v1/campaigns/{campaign}/approvals")
    async def get_approvals(campaign: str, request: Request) -> Response:
        who = await caller(request)
        status, cursor = request.query_params.get("status"), request.query_params.get("cursor")
        if status is not None and status not in _STATUSES:
            raise invalid(f"A status is one of {', '.join(_STATUSES)}.")
        if cursor is not None:
            checked_id(cursor)
        return answer(await approvals.page(checked_id(campaign), who, status, cursor))

    @routes.get("/v1/approvals/{approval}")
    async def get_approval(approval: str, request: Request) -> Response:
        return answer(await approvals.get(checked_id(approval), await caller(request)))

    @routes.post("/v1/approvals/{approval}/decision")
    async def decide(approval: str, request: Request) -> Response:
        who, body = await caller(request), await read_json(request)
        wanted, key = validate(body, ApprovalDecision), claim_in(request, who, body)
        return answer(
            await kept.once(
                key,
                lambda: approvals.decide(checked_id(approval), who, wanted, key),
                lambda decided: approvals.get(decided, who),
            )
        )

    return routes
