"""Payments: a refund can be taken back for a day, until the bank has it."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import asyncpg
from pydantic import Field, StringConstraints

from takeback.toolserver import OperationError, PostgresStore, ToolServer
from takeback.toolserver.record import Tx

Amount = Annotated[Decimal, Field(gt=0, max_digits=12, decimal_places=2)]
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]


def payments_server(pool: asyncpg.Pool[Any]) -> ToolServer:
    """The payment tools; *pool*'s search path is the schema `payments`."""
    server = ToolServer("payments", store=PostgresStore(pool))
    order = server.record("payments://acme/order/{order_id}", version="version")

    @order.read
    async def read(tx: Tx, order_id: str) -> dict[str, Any] | None:
        row = await tx.fetchrow(
            "select paid::text, refunded::text, currency, version from orders where id = $1 for update", order_id
        )
        return dict(row) if row else None

    @order.restore
    async def restore(tx: Tx, order_id: str, before: dict[str, Any]) -> None:
        await tx.execute("update orders set refunded = $2 where id = $1", order_id, Decimal(before["refunded"]))

    @server.operation(
        record=order,
        tier="high",
        window="P1D",
        money={"amount": "amount", "currency": "currency"},
        undo_side_effects=["The customer's bank may already show the refund as announced."],
    )
    async def refund(tx: Tx, order_id: str, amount: Amount, currency: Currency, reason: str) -> dict[str, Any]:
        """Pay some of an order back to its customer."""
        row = await tx.fetchrow(
            "update orders set refunded = refunded + $2 where id = $1 and currency = $3 and refunded + $2 <= paid "
            "returning refunded::text, currency",
            *(order_id, amount, currency),
        )
        if row is None:
            raise OperationError(f"{amount} {currency} of {order_id} cannot be paid back. Nothing was changed.")
        return {"orderId": order_id, "amount": str(amount), "reason": reason, **row}

    @server.read(resource="payments://acme/order/{order_id}")
    async def get_order(tx: Tx, order_id: str) -> dict[str, Any]:
        """What was paid for an order, and what was paid back."""
        row = await tx.fetchrow(
            "select paid::text, refunded::text, currency, version from orders where id = $1", order_id
        )
        if row is None:
            raise OperationError(f"There is no order {order_id}.")
        return {"orderId": order_id, **row}

    return server
