"""The HTTP door of webhooks and deliveries (contract.md, Notifier)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from notifier.deliveries.office import Office
from notifier.idempotency import Idempotency
from takeback import web
from takeback.attempt import Attempt
from takeback.auth import Caller, Verifier
from takeback.messages.base import Nothing
from takeback.messages.deliveries import Delivery, Webhook, WebhookRequest


def router(office: Office, idempotency: Idempotency, verifier: Verifier, wake: Callable[[], None]) -> APIRouter:
    """The doors over *office*; *wake* tells the worker that something is due."""
    doors = APIRouter()

    async def caller_of(request: Request) -> Caller:
        return await verifier.caller(request.headers.get("authorization"))

    @doors.get("/v1/campaigns/{campaign}/webhooks")
    async def webhooks(request: Request, campaign: str) -> Response:
        found = await office.webhooks(web.checked_id(campaign), await caller_of(request))
        return web.answer({"items": [_wire(one) for one in found]})

    @doors.put("/v1/campaigns/{campaign}/webhooks/{name}")
    async def set_webhook(request: Request, campaign: str, name: str) -> Response:
        caller = await caller_of(request)
        wanted = await web.read(request, WebhookRequest)
        made = await office.set_webhook(web.checked_id(campaign), web.checked_id(name), caller, wanted)
        return web.answer(_wire(made))

    @doors.delete("/v1/campaigns/{campaign}/webhooks/{name}")
    async def remove_webhook(request: Request, campaign: str, name: str) -> Response:
        caller = await caller_of(request)
        await office.remove_webhook(web.checked_id(campaign), web.checked_id(name), caller)
        return Response(status_code=204)

    @doors.get("/v1/campaigns/{campaign}/deliveries")
    async def deliveries(
        request: Request, campaign: str, status: str | None = None, cursor: str | None = None
    ) -> Response:
        caller = await caller_of(request)
        after = None if cursor is None else web.checked_id(cursor)
        found, following = await office.deliveries(web.checked_id(campaign), caller, status, after)
        page = {"items": [one.wire() for one in found]}
        return web.answer(page if following is None else {**page, "next": following})

    @doors.post("/v1/campaigns/{campaign}/deliveries/{delivery}/retry")
    async def send_again(request: Request, campaign: str, delivery: str) -> Response:
        caller = await caller_of(request)
        body = await web.read_json(request)
        web.validate(body, Nothing)
        attempt = Attempt.in_request(request, caller, body)

        async def again() -> Delivery:
            made_due = await office.send_again(web.checked_id(campaign), web.checked_id(delivery), caller)
            wake()
            return made_due

        return Response(await idempotency.once(attempt, again), 202, media_type="application/json")

    return doors


def _wire(webhook: Webhook) -> dict[str, Any]:
    """Without a secret there is no member for it."""
    document = webhook.wire()
    return document if webhook.secret else {name: value for name, value in document.items() if name != "secret"}
