"""The game's tool server: 15 tools that write, each with its way back, and two that read."""

from __future__ import annotations

from typing import Any

import asyncpg

from examples.table.critical import add_critical
from examples.table.high import add_high
from examples.table.medium import add_low, add_medium
from examples.table.records import Records
from takeback.toolserver import OperationError, PostgresStore, ToolServer
from takeback.toolserver.record import Tx


def game_server(pool: asyncpg.Pool[Any]) -> ToolServer:
    """The tool server on the game's database; *pool*'s search path is the schema `game`."""
    server = ToolServer("table", store=PostgresStore(pool))
    records = Records(server)
    add_critical(server, records)
    add_high(server, records)
    add_medium(server, records)
    add_low(server, records)
    _add_reads(server)
    return server


def _add_reads(server: ToolServer) -> None:
    @server.read(resource="game://{adventure}/creature/{creature}")
    async def look_at(tx: Tx, adventure: str, creature: str) -> dict[str, Any]:
        """How a creature stands: hit points and conditions."""
        row = await tx.fetchrow(
            "select id, name, hp, max_hp, conditions, death_successes, death_failures from game.creatures "
            "where adventure = $1 and id = $2",
            *(adventure, creature),
        )
        if row is None:
            raise OperationError(f"There is no creature {creature} in {adventure}.")
        return dict(row)

    @server.read(resource="game://{adventure}/combat")
    async def look_at_combat(tx: Tx, adventure: str) -> dict[str, Any]:
        """The round, whose turn it is, and the initiative."""
        row = await tx.fetchrow(
            "select status, round, turn, initiative from game.combats where adventure = $1", adventure
        )
        if row is None:
            raise OperationError(f"There is no adventure {adventure}.")
        return dict(row)
