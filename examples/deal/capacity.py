"""Capacity: teams that are booked because a deal was won."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import asyncpg
from pydantic import Field

from takeback.toolserver import PostgresStore, ToolServer
from takeback.toolserver.record import Tx


def capacity_server(pool: asyncpg.Pool[Any]) -> ToolServer:
    """The booking tool; *pool*'s search path is the schema `capacity`."""
    server = ToolServer("capacity", store=PostgresStore(pool))
    booking = server.table("bookings", resource="capacity://acme/booking/{booking_id}", key="id", version="version")

    @server.operation(record=booking, tier="medium", window="P7D", uses=["crm://acme/deal/{deal_id}"])
    async def book_team(tx: Tx, deal_id: str, team: str, days: Annotated[int, Field(gt=0, le=365)]) -> dict[str, Any]:
        """Book a team for a deal."""
        booking_id = f"b-{secrets.token_hex(4)}"
        await tx.execute("insert into bookings values ($1, $2, $3, $4)", booking_id, deal_id, team, days)
        return {"bookingId": booking_id, "team": team, "days": days}

    return server
