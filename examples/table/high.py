"""Tools of a high tier: they move the story on, or spend what comes back only with rest."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from examples.table.combat import broadcast_combat, changed, creature_of
from examples.table.records import Records, touch_sheet
from takeback.toolserver import Call, OperationError, ToolServer
from takeback.toolserver.record import Tx

Positive = Annotated[int, Field(gt=0, le=1000)]


def add_high(server: ToolServer, records: Records) -> None:
    """`advance_chapter`, `activate_dungeon`, `end_combat`, `rest`, `consume_resource`, `damage_creature`."""

    @server.operation(record=records.adventure, tier="high", window="P7D")
    async def advance_chapter(tx: Tx, call: Call, adventure: str, episode: str) -> dict[str, Any]:
        """Close the chapter and begin the next one with this episode."""
        chapter = await tx.fetchval(
            "update game.adventures set chapter = chapter + 1, episode = $2 where id = $1 returning chapter",
            *(adventure, episode),
        )
        if chapter is None:
            raise OperationError(f"There is no adventure {adventure}. Nothing was changed.")
        call.broadcast({"type": "chapter_advanced", "adventure": adventure, "chapter": chapter})
        return {"chapter": chapter, "episode": episode}

    @server.operation(record=records.adventure, tier="high", window="P7D")
    async def activate_dungeon(tx: Tx, call: Call, adventure: str, dungeon: str) -> dict[str, Any]:
        """Lead the players into a dungeon."""
        changed(
            await tx.execute("update game.adventures set dungeon = $2 where id = $1", adventure, dungeon),
            f"adventure {adventure}",
        )
        call.broadcast({"type": "dungeon_activated", "adventure": adventure, "dungeon": dungeon})
        return {"dungeon": dungeon}

    @server.operation(record=records.combat, tier="high", window="P7D")
    async def end_combat(tx: Tx, call: Call, adventure: str) -> dict[str, Any]:
        """End the fight."""
        changed(
            await tx.execute(
                "update game.combats set status = 'ended', turn = 0, initiative = '{}' "
                "where adventure = $1 and status = 'active'",
                adventure,
            ),
            f"fight in {adventure}",
        )
        await broadcast_combat(tx, call, adventure)
        return {"status": "ended"}

    @server.operation(record=records.sheet, tier="high", window="P7D")
    async def rest(tx: Tx, call: Call, adventure: str, creature: str, kind: Literal["short", "long"]) -> dict[str, Any]:
        """Let a creature rest: a long rest gives everything back, a short one half of what is missing."""
        rows = await tx.fetch(
            "select name, current, maximum from game.resources where adventure = $1 and creature = $2 "
            "and current < maximum order by name",
            *(adventure, creature),
        )
        restored = {}
        for row in rows:
            missing = row["maximum"] - row["current"]
            restored[row["name"]] = missing if kind == "long" else (missing + 1) // 2
        for name, delta in restored.items():
            await _spend(tx, adventure, creature, name, delta, f"{kind} rest")
        await touch_sheet(tx, adventure, creature)
        call.broadcast({"type": "rest_completed", "adventure": adventure, "creature": creature, "kind": kind})
        return {"creature": creature, "restored": restored}

    @server.operation(record=records.sheet, tier="high", window="P7D")
    async def consume_resource(
        tx: Tx, adventure: str, creature: str, resource: str, amount: Positive, why: str
    ) -> dict[str, Any]:
        """Spend some of a creature's resource: a spell slot, a hit die, ki."""
        current = await tx.fetchval(
            "select current from game.resources where adventure = $1 and creature = $2 and name = $3",
            *(adventure, creature, resource),
        )
        if current is None or current < amount:
            raise OperationError(f"{creature} has {current or 0} of {resource}, not {amount}. Nothing was changed.")
        await _spend(tx, adventure, creature, resource, -amount, why)
        await touch_sheet(tx, adventure, creature)
        return {"creature": creature, "resource": resource, "left": current - amount}

    @server.operation(record=records.creature, tier="high", window="P7D")
    async def damage_creature(
        tx: Tx, call: Call, adventure: str, creature: str, amount: Positive, kind: str
    ) -> dict[str, Any]:
        """Deal damage. At 0 hit points a creature falls unconscious."""
        now = await creature_of(tx, adventure, creature)
        hp = max(0, now["hp"] - amount)
        falls = hp == 0 and "unconscious" not in now["conditions"]
        await tx.execute(
            "update game.creatures set hp = $3, conditions = $4 where adventure = $1 and id = $2",
            *(adventure, creature, hp, [*now["conditions"], *(["unconscious"] if falls else [])]),
        )
        await broadcast_combat(tx, call, adventure)
        return {"creature": creature, "name": now["name"], "hp": hp, "damage": amount, "kind": kind}


async def _spend(tx: Tx, adventure: str, creature: str, resource: str, delta: int, why: str) -> None:
    await tx.execute(
        "update game.resources set current = current + $4 where adventure = $1 and creature = $2 and name = $3",
        *(adventure, creature, resource, delta),
    )
    await tx.execute(
        "insert into game.resource_events (adventure, creature, resource, delta, why) values ($1, $2, $3, $4, $5)",
        *(adventure, creature, resource, delta, why),
    )
