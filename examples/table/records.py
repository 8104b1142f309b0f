"""The records of the game that tools change, and how each is read and put back.

What is one row is a `table`. What is a row with others below it (a sheet and its events) has two functions, and its undo
removes only what the call added: whatever somebody else added since stays.
"""

from __future__ import annotations

from typing import Any

from takeback.toolserver import Record, ToolServer
from takeback.toolserver.record import Tx

Fields = dict[str, Any]


class Records:
    """Every kind of record of the game."""

    def __init__(self, server: ToolServer) -> None:
        self.creature = server.table(
            "game.creatures",
            resource="game://{adventure}/creature/{creature}",
            key=["adventure", "id"],
            version="version",
        )
        self.token = server.table(
            "game.tokens",
            resource="game://{adventure}/token/{creature}",
            key=["adventure", "creature"],
            version="version",
        )
        self.combat = server.table(
            "game.combats", resource="game://{adventure}/combat", key="adventure", version="version"
        )
        self.memory = server.table(
            "game.memories",
            resource="game://{adventure}/memory/{topic}",
            key=["adventure", "topic"],
            version="version",
        )
        self.quest = server.table(
            "game.quests", resource="game://{adventure}/quest/{quest}", key=["adventure", "id"], version="version"
        )
        self.adventure = _adventure(server)
        self.sheet = _sheet(server)
        self.inventory = _inventory(server)
        self.map = _map(server)


def _adventure(server: ToolServer) -> Record:
    """The state of completion, the episode, chapter and dungeon, and the achievements."""
    record = server.record("game://{adventure}/adventure", version="version")

    @record.read
    async def read(tx: Tx, adventure: str) -> Fields | None:
        row = await tx.fetchrow(
            "select completed, episode, chapter, dungeon, version from game.adventures where id = $1 for update",
            adventure,
        )
        if row is None:
            return None
        names = await tx.fetch("select name from game.achievements where adventure = $1 order by name", adventure)
        return {**row, "achievements": [found["name"] for found in names]}

    @record.restore
    async def restore(tx: Tx, adventure: str, before: Fields, after: Fields) -> None:
        await tx.execute(
            "update game.adventures set completed = $2, episode = $3, chapter = $4, dungeon = $5 where id = $1",
            *(adventure, before["completed"], before["episode"], before["chapter"], before["dungeon"]),
        )
        held, added = set(before["achievements"]), set(after["achievements"]) - set(before["achievements"])
        await tx.execute(
            "delete from game.achievements where adventure = $1 and name = any($2::text[])", adventure, sorted(added)
        )
        await tx.execute(
            "insert into game.achievements select $1, unnest($2::text[]) on conflict do nothing",
            *(adventure, sorted(held)),
        )

    return record


def _sheet(server: ToolServer) -> Record:
    """What a creature can spend: every row, and every event that led to it."""
    record = server.record("game://{adventure}/sheet/{creature}", version="version")

    @record.read
    async def read(tx: Tx, adventure: str, creature: str) -> Fields | None:
        version = await tx.fetchval(
            "select version from game.sheets where adventure = $1 and creature = $2 for update", adventure, creature
        )
        if version is None:
            return None
        rows = await tx.fetch(
            "select name, current, maximum from game.resources where adventure = $1 and creature = $2 order by name",
            *(adventure, creature),
        )
        events = await tx.fetch(
            "select id, resource, delta, why from game.resource_events where adventure = $1 and creature = $2 "
            "order by id",
            *(adventure, creature),
        )
        return {
            "resources": {row["name"]: {"current": row["current"], "maximum": row["maximum"]} for row in rows},
            "events": [dict(event) for event in events],
            "version": version,
        }

    @record.restore
    async def restore(tx: Tx, adventure: str, creature: str, before: Fields, after: Fields) -> None:
        for name, row in before["resources"].items():
            await tx.execute(
                "insert into game.resources values ($1, $2, $3, $4, $5) on conflict (adventure, creature, name) "
                "do update set current = excluded.current, maximum = excluded.maximum",
                *(adventure, creature, name, row["current"], row["maximum"]),
            )
        held = {event["id"]: event for event in before["events"]}
        there = {event["id"] for event in after["events"]}
        await tx.execute("delete from game.resource_events where id = any($1::bigint[])", sorted(there - held.keys()))
        for event in held.values():
            await tx.execute(
                "insert into game.resource_events values ($1, $2, $3, $4, $5, $6) on conflict (id) do nothing",
                *(event["id"], adventure, creature, event["resource"], event["delta"], event["why"]),
            )
        await touch_sheet(tx, adventure, creature)

    return record


def _inventory(server: ToolServer) -> Record:
    """What a creature carries."""
    record = server.record("game://{adventure}/inventory/{creature}", version="version")

    @record.read
    async def read(tx: Tx, adventure: str, creature: str) -> Fields | None:
        version = await tx.fetchval(
            "select version from game.inventories where adventure = $1 and creature = $2 for update",
            *(adventure, creature),
        )
        if version is None:
            return None
        rows = await tx.fetch(
            "select name, quantity from game.items where adventure = $1 and creature = $2 order by name",
            *(adventure, creature),
        )
        return {"items": {row["name"]: row["quantity"] for row in rows}, "version": version}

    @record.restore
    async def restore(tx: Tx, adventure: str, creature: str, before: Fields, after: Fields) -> None:
        for name in before["items"].keys() | after["items"].keys():
            quantity = before["items"].get(name, 0)
            if quantity:
                await tx.execute(
                    "insert into game.items values ($1, $2, $3, $4) on conflict (adventure, creature, name) "
                    "do update set quantity = excluded.quantity",
                    *(adventure, creature, name, quantity),
                )
            else:
                await tx.execute(
                    "delete from game.items where adventure = $1 and creature = $2 and name = $3",
                    *(adventure, creature, name),
                )
        await touch_inventory(tx, adventure, creature)

    return record


def _map(server: ToolServer) -> Record:
    """Which cells of a map the players have seen."""
    record = server.record("game://{adventure}/map/{area}", version="version")

    @record.read
    async def read(tx: Tx, adventure: str, area: str) -> Fields | None:
        version = await tx.fetchval(
            "select version from game.maps where adventure = $1 and id = $2 for update", adventure, area
        )
        if version is None:
            return None
        cells = await tx.fetch(
            "select x, y from game.revealed_cells where adventure = $1 and map = $2 order by x, y", adventure, area
        )
        return {"revealed": [[cell["x"], cell["y"]] for cell in cells], "version": version}

    @record.restore
    async def restore(tx: Tx, adventure: str, area: str, before: Fields, after: Fields) -> None:
        held = {tuple(cell) for cell in before["revealed"]}
        added = {tuple(cell) for cell in after["revealed"]} - held
        await tx.executemany(
            "delete from game.revealed_cells where adventure = $1 and map = $2 and x = $3 and y = $4",
            [(adventure, area, x, y) for x, y in sorted(added)],
        )
        await reveal(tx, adventure, area, sorted(held))

    return record


async def touch_sheet(tx: Tx, adventure: str, creature: str) -> None:
    """Raise the version of a sheet whose rows changed."""
    await tx.execute(
        "update game.sheets set creature = creature where adventure = $1 and creature = $2", adventure, creature
    )


async def touch_inventory(tx: Tx, adventure: str, creature: str) -> None:
    """Raise the version of an inventory whose rows changed."""
    await tx.execute(
        "update game.inventories set creature = creature where adventure = $1 and creature = $2", adventure, creature
    )


async def reveal(tx: Tx, adventure: str, area: str, cells: list[Any]) -> None:
    """Show cells of a map, those that are seen already included, and raise its version."""
    await tx.executemany(
        "insert into game.revealed_cells values ($1, $2, $3, $4) on conflict do nothing",
        [(adventure, area, x, y) for x, y in cells],
    )
    await tx.execute("update game.maps set id = id where adventure = $1 and id = $2", adventure, area)
