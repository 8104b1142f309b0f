"""The forecast job's tool: what the pipeline is worth. It reads deals, and says which: they are named in `uses`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import asyncpg
import httpx

from takeback.toolserver import Call, OperationError, PostgresStore, ToolServer

CHANCE = {"Lead": Decimal("0.1"), "Proposal": Decimal("0.4"), "Negotiation": Decimal("0.7"), "Won": Decimal(1)}


def forecast_server(pool: asyncpg.Pool[Any], crm: httpx.AsyncClient) -> ToolServer:
    """The forecast; *crm* is a client of the CRM's own API, *pool* keeps only what the SDK needs."""
    server = ToolServer("forecast", store=PostgresStore(pool))

    @server.read()
    async def weigh_deals(call: Call, deal_ids: list[str]) -> dict[str, Any]:
        """What these deals are expected to bring in, by their stage."""
        weighed = []
        for deal_id in deal_ids:
            answer = await crm.get(f"/deals/{deal_id}")
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise OperationError(f"There is no deal {deal_id}.")
            deal = answer.raise_for_status().json()
            call.used(f"crm://acme/deal/{deal_id}")
            expected = Decimal(deal["amount"]) * CHANCE.get(deal["stage"], Decimal(0))
            weighed.append({"dealId": deal_id, "stage": deal["stage"], "expected": f"{expected:.2f}"})
        return {"deals": weighed, "total": f"{sum(Decimal(deal['expected']) for deal in weighed):.2f}"}

    return server
