"""Calls and previews over HTTP: the agent's door (contract.md, Recorder)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from recorder.api.keys import claim_in
from recorder.journal import Unwritable
from recorder.kept import KeptAnswers
from recorder.previews import Previews
from recorder.recording import Recording
from takeback.auth import Caller, Verifier
from takeback.errors import invalid
from takeback.messages.entry import CallRequest, PreviewRequest
from takeback.web import answer, checked_id, read_json, validate


def router(verifier: Verifier, recording: Recording, previews: Previews, kept: KeptAnswers) -> APIRouter:
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
        who, body = await caller(request), await read_json(request)
        wanted, key = validate(body, PreviewRequest), claim_in(request, who, body)

        async def shown(_: str = "") -> dict[str, Any]:
            made = await previews.preview(checked_id(run), who, wanted)
            await kept.keep(key, made["id"])
            return made

        return answer(await kept.once(key, shown, shown))

    return routes
