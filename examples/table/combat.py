"""What the tools of a fight share: creatures as everybody sees them, and the broadcast that every client gets."""

from __future__ import annotations

from typing import Any

from takeback.toolserver import Call, OperationError
from takeback.toolserver.record import Tx


async def broadcast_combat(tx: Tx, call: Call, adventure: str) -> None:
    """Tell every client of the table how the fight stands."""
    combat = await tx.fetchrow("select status, round, turn from game.combats where adventure = $1", adventure)
    creatures = await tx.fetch(
        "select id, name, hp, conditions from game.creatures where adventure = $1 order by id", adventure
    )
    call.broadcast(
        {
            "type": "combat_state_update",
            "adventure": adventure,
            **(dict(combat) if combat else {}),
            "creatures": [dict(creature) for creature in creatures],
        }
    )


def changed(status: str, what: str) -> None:
    """Refuse a tool whose statement found nothing to change (asyncpg's command *status* ends with the count)."""
    if status.endswith(" 0"):
        raise OperationError(f"There is no {what}. Nothing was changed.")


async def creature_of(tx: Tx, adventure: str, creature: str) -> dict[str, Any]:
    """A creature of the adventure. Raises `OperationError` where there is none."""
    row = await tx.fetchrow(
        "select * from game.creatures where adventure = $1 and id = $2 for update", adventure, creature
    )
    if row is None:
        raise OperationError(f"There is no creature {creature} in {adventure}. Nothing was changed.")
    return dict(row)
