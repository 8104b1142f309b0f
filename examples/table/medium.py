"""Tools of a medium tier: whose turn it is, what is seen, remembered, carried and sought. And `move_token`, the low one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from examples.table.combat import broadcast_combat, changed
from examples.table.records import Records, reveal, touch_inventory
from takeback.toolserver import Call, OperationError, ToolServer
from takeback.toolserver.record import Tx

Cell = Annotated[list[int], Field(min_length=2, max_length=2)]


def add_medium(server: ToolServer, records: Records) -> None:
    """`advance_turn`, `reveal_fog`, `write_memory`, `grant_item`, `update_quest`."""

    @server.operation(record=records.combat, tier="medium", window="P1D")
    async def advance_turn(tx: Tx, call: Call, adventure: str) -> dict[str, Any]:
        """Give the turn to whoever is next; after the last one a new round begins."""
        row = await tx.fetchrow(
            "update game.combats set turn = (turn + 1) % cardinality(initiative), "
            "round = round + (turn + 1) / cardinality(initiative) "
            "where adventure = $1 and status = 'active' and initiative <> '{}' returning round, turn, initiative",
            adventure,
        )
        if row is None:
            raise OperationError(f"There is no fight in {adventure}. Nothing was changed.")
        await broadcast_combat(tx, call, adventure)
        return {"round": row["round"], "turn": row["initiative"][row["turn"]]}

    @server.operation(record=records.map, tier="medium", window="P7D")
    async def reveal_fog(
        tx: Tx, call: Call, adventure: str, area: str, cells: Annotated[list[Cell], Field(max_length=400)]
    ) -> dict[str, Any]:
        """Show cells of a map to the players."""
        await reveal(tx, adventure, area, cells)
        call.broadcast({"type": "fog_revealed", "adventure": adventure, "area": area, "cells": cells})
        return {"area": area, "revealed": len(cells)}

    @server.operation(record=records.memory, tier="medium", window="P30D")
    async def write_memory(tx: Tx, adventure: str, topic: str, note: str) -> dict[str, Any]:
        """Remember something about the story; what was remembered of the topic before is replaced."""
        await tx.execute(
            "insert into game.memories (adventure, topic, note) values ($1, $2, $3) "
            "on conflict (adventure, topic) do update set note = excluded.note",
            *(adventure, topic, note),
        )
        return {"topic": topic}

    @server.operation(record=records.inventory, tier="medium", window="P7D")
    async def grant_item(
        tx: Tx, adventure: str, creature: str, item: str, quantity: Annotated[int, Field(gt=0, le=1000)] = 1
    ) -> dict[str, Any]:
        """Give a creature something to carry."""
        now = await tx.fetchval(
            "insert into game.items values ($1, $2, $3, $4) on conflict (adventure, creature, name) "
            "do update set quantity = items.quantity + excluded.quantity returning quantity",
            *(adventure, creature, item, quantity),
        )
        await touch_inventory(tx, adventure, creature)
        return {"creature": creature, "item": item, "quantity": now}

    @server.operation(record=records.quest, tier="medium", window="P7D")
    async def update_quest(
        tx: Tx, adventure: str, quest: str, progress: str, status: Literal["open", "done", "failed"] = "open"
    ) -> dict[str, Any]:
        """Write down how far the players have come with a quest."""
        changed(
            await tx.execute(
                "update game.quests set progress = $3, status = $4 where adventure = $1 and id = $2",
                *(adventure, quest, progress, status),
            ),
            f"quest {quest} in {adventure}",
        )
        return {"quest": quest, "status": status}


def add_low(server: ToolServer, records: Records) -> None:
    """`move_token`."""

    @server.operation(record=records.token, tier="low", window="P1D")
    async def move_token(tx: Tx, call: Call, adventure: str, creature: str, x: int, y: int) -> dict[str, Any]:
        """Move a creature's token on the map."""
        changed(
            await tx.execute(
                "update game.tokens set x = $3, y = $4 where adventure = $1 and creature = $2",
                *(adventure, creature, x, y),
            ),
            f"token of {creature} in {adventure}",
        )
        call.broadcast({"type": "token_moved", "adventure": adventure, "creature": creature, "x": x, "y": y})
        return {"creature": creature, "x": x, "y": y}
