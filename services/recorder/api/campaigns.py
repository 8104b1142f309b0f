"""Campaigns, members, agents, policy, calendars, tool servers and the security log over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import TypeAdapter
from starlette.responses import Response

from recorder.api.keys import claim_in
from recorder.campaigns import Campaigns
from recorder.kept import KeptAnswers
from recorder.servers import Servers
from takeback.auth import Caller, Verifier
from takeback.errors import invalid
from takeback.messages.base import Name, ShownName
from takeback.messages.campaign import (
    AgentRequest,
    CalendarRequest,
    CampaignRequest,
    HttpServer,
    McpHttp,
    MemberRequest,
    NatsServer,
    Policy,
    ServerRequest,
)
from takeback.web import answer, checked_id, read, read_json, validate

_SERVER: TypeAdapter[McpHttp | NatsServer | HttpServer] = TypeAdapter(ServerRequest)


def router(verifier: Verifier, campaigns: Campaigns, servers: Servers, kept: KeptAnswers) -> APIRouter:
    """The door; each route parses, asks a use case and answers."""
    routes = APIRouter()

    async def caller(request: Request) -> Caller:
        return await verifier.caller(request.headers.get("authorization"))

    @routes.post("/v1/campaigns")
    async def open_campaign(request: Request) -> Response:
        who, body = await caller(request), await read_json(request)
        wanted, key = validate(body, CampaignRequest), claim_in(request, who, body)
        opened = await kept.once(
            key, lambda: campaigns.open(who, wanted, key), lambda campaign: campaigns.describe(campaign, who)
        )
        return answer(opened, 201)

    @routes.get("/v1/campaigns")
    async def list_campaigns(request: Request) -> Response:
        who, cursor = await caller(request), request.query_params.get("cursor")
        return answer(await campaigns.of(who, checked_id(cursor) if cursor else None))

    @routes.get("/v1/campaigns/{campaign}")
    async def get_campaign(campaign: str, request: Request) -> Response:
        return answer(await campaigns.describe(checked_id(campaign), await caller(request)))

    @routes.put("/v1/campaigns/{campaign}/members/{sub:path}")
    async def put_member(campaign: str, sub: str, request: Request) -> Response:
        who, wanted = await caller(request), await read(request, MemberRequest)
        return answer(await campaigns.put_member(checked_id(campaign), who, _given(sub), wanted))

    @routes.delete("/v1/campaigns/{campaign}/members/{sub:path}")
    async def delete_member(campaign: str, sub: str, request: Request) -> Response:
        await campaigns.remove_member(checked_id(campaign), await caller(request), _named(sub))
        return Response(status_code=204)

    @routes.get("/v1/campaigns/{campaign}/policy")
    async def get_policy(campaign: str, request: Request) -> Response:
        return answer(await campaigns.policy(checked_id(campaign), await caller(request)))

    @routes.put("/v1/campaigns/{campaign}/policy")
    async def put_policy(campaign: str, request: Request) -> Response:
        who, wanted = await caller(request), await read(request, Policy)
        return answer(await campaigns.put_policy(checked_id(campaign), who, wanted))

    @routes.put("/v1/campaigns/{campaign}/agents/{name:path}")
    async def put_agent(campaign: str, name: str, request: Request) -> Response:
        who, wanted = await caller(request), await read(request, AgentRequest)
        return answer(await campaigns.put_agent(checked_id(campaign), who, _given(name), wanted))

    @routes.put("/v1/campaigns/{campaign}/calendars/{sub:path}")
    async def put_calendar(campaign: str, sub: str, request: Request) -> Response:
        who, wanted = await caller(request), await read(request, CalendarRequest)
        return answer(await campaigns.put_calendar(checked_id(campaign), who, _named(sub), wanted))

    @routes.get("/v1/campaigns/{campaign}/security-log")
    async def security_log(campaign: str, request: Request) -> Response:
        cursor = request.query_params.get("cursor")
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
            raise invalid("The cursor is not one that a listing gave.")
        page = await campaigns.security_page(
            checked_id(campaign), await caller(request), int(cursor) if cursor else None
        )
        return answer(page)

    @routes.put("/v1/campaigns/{campaign}/servers/{name}")
    async def put_server(campaign: str, name: str, request: Request) -> Response:
        who, wanted = await caller(request), await read(request, _SERVER)
        return answer(await servers.put(checked_id(campaign), who, name, wanted))

    @routes.get("/v1/campaigns/{campaign}/servers/{name}")
    async def get_server(campaign: str, name: str, request: Request) -> Response:
        return answer(await servers.describe(checked_id(campaign), await caller(request), name))

    return routes


def _given(value: str) -> str:
    """A name that somebody gets now: one that people can tell from others by looking."""
    return validate(value, TypeAdapter(ShownName))


def _named(value: str) -> str:
    """A name in a path, as strict as one in a body."""
    validate(value, TypeAdapter(Name))
    if "\x00" in value:
        raise invalid("A name holds the NUL character.")
    return value
