"""Entries over HTTP: read one, read a run's, settle a doubt (contract.md, Recorder)."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from recorder.api.keys import claim_in
from recorder.doubt import Doubts
from recorder.entries import PAGE, Entries
from recorder.kept import KeptAnswers
from takeback.auth import Caller, Verifier
from takeback.errors import invalid
from takeback.messages.entry import ResolutionRequest
from takeback.web import answer, checked_id, read_json, validate


def router(verifier: Verifier, entries: Entries, doubts: Doubts, kept: KeptAnswers) -> APIRouter:
    """The door; each route parses, asks a use case and answers."""
    routes = APIRouter()

    async def caller(request: Request) -> Caller:
        return await verifier.caller(request.headers.get("authorization"))

    @routes.get("/v1/entries/{entry}")
    async def get_entry(entry: str, request: Request) -> Response:
        return answer(await entries.get(checked_id(entry), await caller(request)))

    @routes.get("/v1/runs/{run}/entries")
    async def get_entries(run: str, request: Request) -> Response:
        cursor = request.query_params.get("cursor", "0")
        if not cursor.isdecimal() or len(cursor) > 9:
            raise invalid("The cursor is not one that a listing gave.")
        order = request.query_params.get("order", "oldest")
        if order not in ("oldest", "newest"):
            raise invalid("The order is oldest or newest.")
        limit = request.query_params.get("limit", str(PAGE))
        if not (limit.isascii() and limit.isdigit() and 0 < int(limit[:9]) <= PAGE):
            raise invalid(f"The limit is a number from 1 to {PAGE}.")
        page = await entries.of_run(
            checked_id(run), await caller(request), int(cursor), int(limit), newest_first=order == "newest"
        )
        return answer(page)

    @routes.post("/v1/entries/{entry}/resolution")
    async def resolve(entry: str, request: Request) -> Response:
        who, body = await caller(request), await read_json(request)
        wanted, key = validate(body, ResolutionRequest), claim_in(request, who, body)
        return answer(
            await kept.once(
                key,
                lambda: doubts.resolve(checked_id(entry), who, wanted, key),
                lambda settled: entries.get(settled, who),
            )
        )

    return routes
