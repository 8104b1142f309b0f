"""Runs over HTTP: opened, paused, resumed, closed, read, and their signed records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from recorder.api.keys import claim_in
from recorder.campaigns import Campaigns
from recorder.journal import Idempotency
from recorder.journal.export import Exporter
from recorder.kept import KeptAnswers
from recorder.runs import Runs
from takeback.auth import Caller, Verifier
from takeback.messages.base import Nothing
from takeback.messages.campaign import RunRequest
from takeback.web import answer, checked_id, read_json, validate

_NDJSON = "application/x-ndjson"


def router(verifier: Verifier, campaigns: Campaigns, runs: Runs, exporter: Exporter, kept: KeptAnswers) -> APIRouter:
    """The door; each route parses, asks a use case and answers."""
    routes = APIRouter()

    async def caller(request: Request) -> Caller:
        return await verifier.caller(request.headers.get("authorization"))

    @routes.post("/v1/campaigns/{campaign}/runs")
    async def open_run(campaign: str, request: Request) -> Response:
        who, body = await caller(request), await read_json(request)
        wanted, key = validate(body, RunRequest), claim_in(request, who, body)
        opened = await kept.once(
            key, lambda: runs.open(checked_id(campaign), who, wanted, key), lambda run: runs.described(run, who)
        )
        return answer(opened, 201)

    async def changed(
        run: str, request: Request, change: Callable[[str, Caller, Idempotency | None], Awaitable[dict[str, Any]]]
    ) -> Response:
        who, body = await caller(request), await read_json(request)
        validate(body, Nothing)
        key = claim_in(request, who, body)
        return answer(
            await kept.once(key, lambda: change(checked_id(run), who, key), lambda run: runs.described(run, who))
        )

    @routes.get("/v1/campaigns/{campaign}/runs")
    async def list_runs(campaign: str, request: Request) -> Response:
        who, cursor = await caller(request), request.query_params.get("cursor")
        return answer(await runs.page(checked_id(campaign), who, checked_id(cursor) if cursor else None))

    @routes.get("/v1/runs/{run}")
    async def get_run(run: str, request: Request) -> Response:
        return answer((await runs.get(checked_id(run), await caller(request))).described())

    @routes.post("/v1/runs/{run}/close")
    async def close_run(run: str, request: Request) -> Response:
        return await changed(run, request, runs.close)

    @routes.post("/v1/runs/{run}/pause")
    async def pause_run(run: str, request: Request) -> Response:
        return await changed(run, request, runs.pause)

    @routes.post("/v1/runs/{run}/resume")
    async def resume_run(run: str, request: Request) -> Response:
        return await changed(run, request, runs.resume)

    @routes.get("/v1/runs/{run}/record")
    async def run_record(run: str, request: Request) -> Response:
        found = await runs.get(checked_id(run), await caller(request))
        return StreamingResponse(await exporter.export(found.id), media_type=_NDJSON)

    @routes.get("/v1/campaigns/{campaign}/record")
    async def campaign_record(campaign: str, request: Request) -> Response:
        await campaigns.require(checked_id(campaign), await caller(request))
        return StreamingResponse(await exporter.export(campaign), media_type=_NDJSON)

    return routes
