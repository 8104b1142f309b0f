"""The CRM: deals and their notes. Its tools can be taken back for a week; its people also edit deals by themselves."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import asyncpg
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.hosting import RequireBearer
from takeback.toolserver import OperationError, PostgresStore, Record, ToolServer
from takeback.toolserver.record import Tx

Stage = Literal["Lead", "Proposal", "Negotiation", "Won", "Lost"]
_FIELDS = ("stage", "amount", "next_step")


def crm_server(pool: asyncpg.Pool[Any]) -> ToolServer:
    """The CRM's tools; *pool*'s search path is the schema `crm`."""
    server = ToolServer("crm", store=PostgresStore(pool))
    deal = _deal(server)
    notes = server.table("notes", resource="crm://acme/notes/{deal_id}", key="deal", version="version")

    @server.operation(record=deal, tier="high", window="P7D")
    async def update_deal(
        tx: Tx,
        deal_id: str,
        stage: Stage | None = None,
        amount: Decimal | None = None,
        next_step: str | None = None,
    ) -> dict[str, Any]:
        """Change a deal's stage, amount or next step; what is not named stays."""
        row = await _edit(tx, deal_id, {"stage": stage, "amount": amount, "next_step": next_step}, by="agent")
        if row is None:
            raise OperationError(f"There is no deal {deal_id}. Nothing was changed.")
        return row

    @server.operation(record=notes, tier="medium", window="P7D")
    async def update_notes(
        tx: Tx, deal_id: str, summary: str | None = None, risks: str | None = None, wishes: str | None = None
    ) -> dict[str, Any]:
        """Write a deal's notes; what is not named stays."""
        status = await tx.execute(
            "update notes set summary = coalesce($2, summary), risks = coalesce($3, risks), "
            "wishes = coalesce($4, wishes) where deal = $1",
            *(deal_id, summary, risks, wishes),
        )
        if status.endswith(" 0"):
            raise OperationError(f"There are no notes of {deal_id}. Nothing was changed.")
        return {"dealId": deal_id}

    @server.read(resource="crm://acme/deal/{deal_id}")
    async def get_deal(tx: Tx, deal_id: str) -> dict[str, Any]:
        """A deal as it stands."""
        row = await _get(tx, deal_id)
        if row is None:
            raise OperationError(f"There is no deal {deal_id}.")
        return row

    return server


def _deal(server: ToolServer) -> Record:
    """A deal's fields, its amount as a decimal string."""
    record = server.record("crm://acme/deal/{deal_id}", version="version")

    @record.read
    async def read(tx: Tx, deal_id: str) -> dict[str, Any] | None:
        row = await tx.fetchrow(
            'select stage, amount::text, currency, next_step as "nextStep", customer, version '
            "from deals where id = $1 for update",
            deal_id,
        )
        return dict(row) if row else None

    @record.restore
    async def restore(tx: Tx, deal_id: str, before: dict[str, Any]) -> None:
        await tx.execute(
            "update deals set stage = $2, amount = $3, next_step = $4, edited_by = 'undo' where id = $1",
            *(deal_id, before["stage"], Decimal(before["amount"]), before["nextStep"]),
        )

    return record


async def _get(tx: Any, deal_id: str) -> dict[str, Any] | None:
    row = await tx.fetchrow(
        'select id as "dealId", customer, stage, amount::text, currency, next_step as "nextStep", version '
        "from crm.deals where id = $1",
        deal_id,
    )
    return dict(row) if row else None


async def _edit(tx: Any, deal_id: str, fields: dict[str, Any], *, by: str) -> dict[str, Any] | None:
    await tx.execute(
        "update crm.deals set stage = coalesce($2, stage), amount = coalesce($3, amount), "
        "next_step = coalesce($4, next_step), edited_by = $5 where id = $1",
        *(deal_id, *(fields.get(name) for name in _FIELDS), by),
    )
    return await _get(tx, deal_id)


# --- the application itself, for people ---


class NewDeal(BaseModel):
    """`PUT /deals/{id}`: a deal as somebody enters it."""

    customer: str
    stage: Stage
    amount: Decimal
    currency: str
    next_step: str = ""
    notes: dict[str, str] = {}


class Edit(BaseModel):
    """`PATCH /deals/{id}`: what a teammate changes by hand."""

    stage: Stage | None = None
    amount: Decimal | None = None
    next_step: str | None = None
    notes: dict[str, str] = {}
    by: str


def crm_application(pool: asyncpg.Pool[Any], token: str) -> Starlette:
    """The CRM's own API, which its people use. No agent has its *token*, and nothing of it passes the recorder."""

    async def put(request: Request) -> Response:
        deal, new = request.path_params["deal"], NewDeal.model_validate_json(await request.body())
        async with pool.acquire() as tx, tx.transaction():
            await tx.execute(
                "insert into deals values ($1, $2, $3, $4, $5, $6, 'application') on conflict (id) do update set "
                "customer = excluded.customer, stage = excluded.stage, amount = excluded.amount, "
                "currency = excluded.currency, next_step = excluded.next_step, edited_by = excluded.edited_by",
                *(deal, new.customer, new.stage, new.amount, new.currency, new.next_step),
            )
            await tx.execute("insert into notes (deal) values ($1) on conflict do nothing", deal)
            await _write_notes(tx, deal, {"summary": "", "risks": "", "wishes": "", **new.notes})
            return JSONResponse(await _get(tx, deal))

    async def patch(request: Request) -> Response:
        deal, edit = request.path_params["deal"], Edit.model_validate_json(await request.body())
        async with pool.acquire() as tx, tx.transaction():
            if edit.model_fields_set & set(_FIELDS):
                await _edit(tx, deal, edit.model_dump(include=set(_FIELDS)), by=edit.by)
            if edit.notes:
                await _write_notes(tx, deal, edit.notes)
            return JSONResponse(await _get(tx, deal))

    async def get(request: Request) -> Response:
        row = await _get(pool, request.path_params["deal"])
        notes = await pool.fetchrow(
            "select summary, risks, wishes from notes where deal = $1", request.path_params["deal"]
        )
        if row is None:
            return Response(status_code=404)
        return JSONResponse({**row, "notes": dict(notes) if notes else {}})

    async def listing(_: Request) -> Response:
        rows = await pool.fetch("select id from deals order by id")
        return JSONResponse([await _get(pool, row["id"]) for row in rows])

    return Starlette(
        routes=[
            Route("/deals", listing),
            Route("/deals/{deal}", put, methods=["PUT"]),
            Route("/deals/{deal}", patch, methods=["PATCH"]),
            Route("/deals/{deal}", get),
        ],
        middleware=[Middleware(RequireBearer, token=token)],
    )


async def _write_notes(tx: Any, deal: str, notes: dict[str, str]) -> None:
    await tx.execute(
        "update notes set summary = coalesce($2, summary), risks = coalesce($3, risks), "
        "wishes = coalesce($4, wishes) where deal = $1",
        *(deal, notes.get("summary"), notes.get("risks"), notes.get("wishes")),
    )
