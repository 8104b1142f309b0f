"""Calls and previews over HTTP: the agent's door (contract.md, Recorder)."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from recorder.api.keys import claim_in
from recorder.journal import Unwritable
from recorder.previews import Previews
from recorder.recording import Recording
from takeback.auth import Caller, Verifier
from takeback.errors import invalid
from takeback.messages.entry import CallRequest, PreviewRequest
from takeback.web import answer, checked_id, read, read_json, validate


def router(verifier: Verifier, recording: Recording, previews: Previews) -> APIRouter:
    """The door; each route parses, asks a use case and answers."""
    routes = APIRouter()

    async def caller(request: Request) -> Caller:
        return await verifier.caller(request.headers.get("authorization"))

    async def call(request: Request) -> Response:
        who = await caller(request)
        body = await read_json(request)
        wanted = validate(body, CallRequest)
        run = checked_id(request.path_params["run"])
        try:
            made = await recording.call(run, who, wanted, claim_in(request, who, body))
        except Unwritable as error:
            raise invalid(f"The call holds what the journal cannot keep: {error}") from error
        return answer(made.document, made.status)

    # A plain route: `web.App` leads it past everything that a call does not need.
    routes.add_route("/v1/runs/{run}/calls", call, methods=["POST"])

    @routes.post("/v1/runs/{run}/previews")
    async def preview(run: str, request: Request) -> Response:
        who, wanted = await caller(request), await read(request, PreviewRequest)
        return answer(await previews.preview(checked_id(run), who, wanted))

    return routes
