"""The tools of the widest blast radius: they end a story, begin a fight, or decide over life and death."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from examples.table.combat import broadcast_combat, changed, creature_of
from examples.table.records import Records
from takeback.toolserver import Call, ToolServer
from takeback.toolserver.record import Tx

Count = Annotated[int, Field(ge=0, le=3)]


class DeathSaves(BaseModel):
    """How many death saves a creature has won and lost."""

    successes: Count = 0
    failures: Count = 0


def add_critical(server: ToolServer, records: Records) -> None:
    """`end_adventure`, `start_combat`, `modify_creature`."""

    @server.operation(record=records.adventure, tier="critical", window="P30D")
    async def end_adventure(tx: Tx, call: Call, adventure: str, achievements: list[str]) -> dict[str, Any]:
        """Mark the adventure as completed for good, unlock achievements, and end its episode."""
        changed(
            await tx.execute("update game.adventures set completed = true, episode = null where id = $1", adventure),
            f"adventure {adventure}",
        )
        await tx.execute(
            "insert into game.achievements select $1, unnest($2::text[]) on conflict do nothing",
            *(adventure, achievements),
        )
        call.broadcast({"type": "adventure_ended", "adventure": adventure, "achievements": achievements})
        return {"adventure": adventure, "completed": True}

    @server.operation(record=records.combat, tier="critical", window="P7D")
    async def start_combat(tx: Tx, call: Call, adventure: str, initiative: list[str]) -> dict[str, Any]:
        """Begin a fight: who acts in which order."""
        changed(
            await tx.execute(
                "update game.combats set status = 'active', round = 1, turn = 0, initiative = $2 where adventure = $1",
                *(adventure, initiative),
            ),
            f"adventure {adventure}",
        )
        await broadcast_combat(tx, call, adventure)
        return {"round": 1, "turn": initiative[0] if initiative else None}

    @server.operation(record=records.creature, tier="critical", window="P7D")
    async def modify_creature(
        tx: Tx,
        call: Call,
        adventure: str,
        creature: str,
        hp: Annotated[int, Field(ge=0)] | None = None,
        add_conditions: list[str] | None = None,
        remove_conditions: list[str] | None = None,
        death_saves: DeathSaves | None = None,
    ) -> dict[str, Any]:
        """Set a creature's hit points, conditions and death saves."""
        now = await creature_of(tx, adventure, creature)
        kept = [one for one in now["conditions"] if one not in (remove_conditions or [])]
        conditions = kept + [one for one in add_conditions or [] if one not in kept]
        saves = death_saves or DeathSaves(successes=now["death_successes"], failures=now["death_failures"])
        left = now["hp"] if hp is None else min(hp, now["max_hp"])
        await tx.execute(
            "update game.creatures set hp = $3, conditions = $4, death_successes = $5, death_failures = $6 "
            "where adventure = $1 and id = $2",
            *(adventure, creature, left, conditions, saves.successes, saves.failures),
        )
        await broadcast_combat(tx, call, adventure)
        return {"creature": creature, "name": now["name"], "hp": left, "conditions": conditions}
