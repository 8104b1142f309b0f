"""The HTTP door: reviews and their queue, windows, broadcasts, questions of the journal, tickets (contract.md, Notifier)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from notifier.announcements import Announcer
from notifier.hub import Hub
from notifier.idempotency import Idempotency
from notifier.measuring import Measuring
from notifier.questions import Questions
from notifier.queue import Cursor, Queue
from notifier.reviews import Reviews
from notifier.tickets import Tickets
from takeback import web
from takeback.attempt import Attempt
from takeback.auth import Caller, Verifier
from takeback.errors import invalid
from takeback.ids import is_valid_id
from takeback.messages.base import MOST_NAMED, Message, Nothing
from takeback.messages.base import Request as RequestBody
from takeback.messages.review import AcknowledgementRequest, Broadcast, BroadcastRequest

Wanted = TypeVar("Wanted", bound=RequestBody)


def router(
    reviews: Reviews,
    tickets: Tickets,
    idempotency: Idempotency,
    verifier: Verifier,
    hub: Hub,
    announcer: Announcer,
    questions: Questions,
    queue: Queue,
    measuring: Measuring,
) -> APIRouter:
    """The doors over these use cases."""
    doors = APIRouter()

    async def caller_of(request: Request) -> Caller:
        return await verifier.caller(request.headers.get("authorization"))

    async def once(
        request: Request,
        caller: Caller,
        model: type[Wanted],
        act: Callable[[Wanted, str | None], Awaitable[Message]],
    ) -> Response:
        """What *act* answers, or answered to the same request before."""
        body = await web.read_json(request)
        wanted = web.validate(body, model)
        attempt = Attempt.in_request(request, caller, body)
        document = await idempotency.once(attempt, lambda: act(wanted, attempt.seed if attempt else None))
        return Response(document, 201, media_type="application/json")

    def named(request: Request, what: str) -> list[str]:
        """The ids that the address names, as many as one question may."""
        ids = list(dict.fromkeys(request.query_params.getlist(what)))
        if len(ids) > MOST_NAMED:
            raise invalid(f"Name at most {MOST_NAMED} of {what} at a time.")
        if not all(map(is_valid_id, ids)):
            raise invalid(f"One of {what} is no id.")
        return ids

    @doors.get("/v1/runs/{run}/review")
    async def read_review(request: Request, run: str) -> Response:
        caller = await caller_of(request)
        return web.answer((await reviews.read(web.checked_id(run), caller)).wire())

    @doors.post("/v1/runs/{run}/review/acknowledgement")
    async def acknowledge(request: Request, run: str) -> Response:
        caller = await caller_of(request)

        async def record(wanted: AcknowledgementRequest, seed: str | None) -> Message:
            return await reviews.acknowledge(web.checked_id(run), caller, wanted, seed)

        return await once(request, caller, AcknowledgementRequest, record)

    @doors.post("/v1/campaigns/{campaign}/broadcasts")
    async def broadcast(request: Request, campaign: str) -> Response:
        caller = await caller_of(request)

        async def send(wanted: BroadcastRequest, seed: str | None) -> Message:
            event = await reviews.broadcast(web.checked_id(campaign), caller, wanted.payload, seed)
            hub.wake(campaign)
            announcer.wake()
            return Broadcast(id=event.id)

        return await once(request, caller, BroadcastRequest, send)

    @doors.get("/v1/campaigns/{campaign}/reviews")
    async def review_queue(request: Request, campaign: str, cursor: str | None = None) -> Response:
        caller = await caller_of(request)
        runs = named(request, "run") if "run" in request.query_params else None
        after = None if cursor is None else Cursor.read(cursor)
        queued, following = await queue.read(web.checked_id(campaign), caller, after, runs)
        page = {"items": [one.wire() for one in queued]}
        return web.answer(page if following is None else {**page, "next": str(following)})

    @doors.get("/v1/campaigns/{campaign}/windows")
    async def windows(request: Request, campaign: str) -> Response:
        caller = await caller_of(request)
        found = await reviews.windows(web.checked_id(campaign), caller, named(request, "entry"))
        return web.answer({"items": [one.wire() for one in found]})

    @doors.get("/v1/campaigns/{campaign}/questions/calls")
    async def how_often(request: Request, campaign: str) -> Response:
        return web.answer((await questions.calls(web.checked_id(campaign), await caller_of(request))).wire())

    @doors.get("/v1/campaigns/{campaign}/questions/reversals")
    async def what_share(request: Request, campaign: str) -> Response:
        return web.answer((await questions.reversals(web.checked_id(campaign), await caller_of(request))).wire())

    @doors.get("/v1/campaigns/{campaign}/questions/reviews")
    async def how_fast(request: Request, campaign: str) -> Response:
        return web.answer((await measuring.speeds(web.checked_id(campaign), await caller_of(request))).wire())

    @doors.post("/v1/tickets")
    async def ticket(request: Request) -> Response:
        caller = await caller_of(request)

        async def issue(_: Nothing, __: str | None) -> Message:
            return await tickets.issue(caller)

        return await once(request, caller, Nothing, issue)

    return doors
