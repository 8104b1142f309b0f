"""The game as its players' own application sees it: who sits at the table, and how a creature stands right now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import asyncpg

Rows = dict[str, list[tuple[Any, ...]]]

TABLES = (
    "adventures", "achievements", "combats", "creatures", "tokens", "sheets", "resources", "resource_events",
    "inventories", "items", "maps", "revealed_cells", "memories", "quests",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Creature:
    """A creature at the table; *player* is whoever plays it, None for a monster."""

    id: str
    name: str
    max_hp: int
    hp: int
    player: str | None = None
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scene:
    """An adventure as it is before an agent comes to it."""

    adventure: str
    title: str
    creatures: Sequence[Creature]
    map: str = "crypt"
    quest: str = "crown"


class Game:
    """The game's database. *pool* is any pool that may use the schema `game`."""

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool

    async def prepare(self) -> None:
        """Make the tables where they do not exist yet."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("select pg_advisory_xact_lock(hashtextextended('game', 0))")
            await connection.execute((files("examples.table") / "schema.sql").read_text())

    async def set_up(self, scene: Scene) -> None:
        """Begin the scene anew; an adventure of the same id is put back to its beginning."""
        async with self._pool.acquire() as connection, connection.transaction():
            for table in reversed(TABLES):
                column = "id" if table == "adventures" else "adventure"
                await connection.execute(f"delete from game.{table} where {column} = $1", scene.adventure)  # noqa: S608
            await connection.execute(
                "insert into game.adventures (id, title, episode) values ($1, $2, 'The gate')",
                *(scene.adventure, scene.title),
            )
            await connection.execute("insert into game.achievements values ($1, 'First blood')", scene.adventure)
            await connection.execute("insert into game.combats (adventure) values ($1)", scene.adventure)
            await connection.execute("insert into game.maps values ($1, $2)", scene.adventure, scene.map)
            await connection.execute(
                "insert into game.revealed_cells values ($1, $2, 0, 0)", scene.adventure, scene.map
            )
            await connection.execute(
                "insert into game.quests values ($1, $2, 'Find the crown')", scene.adventure, scene.quest
            )
            for place, creature in enumerate(scene.creatures):
                await self._add(connection, scene.adventure, creature, place)

    async def creature(self, adventure: str, creature: str) -> dict[str, Any]:
        """A creature's row, as it stands in the database now. Raises LookupError."""
        row = await self._pool.fetchrow(
            "select * from game.creatures where adventure = $1 and id = $2", adventure, creature
        )
        if row is None:
            raise LookupError(f"There is no creature {creature} in {adventure}")
        return dict(row)

    async def rows(self, adventure: str) -> Rows:
        """Every row of the adventure, table by table, without the versions: what an undo has to bring back."""
        found: Rows = {}
        for table in TABLES:
            column = "id" if table == "adventures" else "adventure"
            rows = await self._pool.fetch(f"select * from game.{table} where {column} = $1", adventure)  # noqa: S608
            found[table] = sorted(tuple(value for name, value in row.items() if name != "version") for row in rows)
        return found

    async def _add(self, connection: Any, adventure: str, creature: Creature, place: int) -> None:
        at = (adventure, creature.id)
        await connection.execute(
            "insert into game.creatures (adventure, id, name, player, hp, max_hp) values ($1, $2, $3, $4, $5, $6)",
            *(*at, creature.name, creature.player, creature.hp, creature.max_hp),
        )
        await connection.execute("insert into game.tokens values ($1, $2, $3, 1)", *at, place)
        await connection.execute("insert into game.sheets values ($1, $2)", *at)
        await connection.execute("insert into game.inventories values ($1, $2)", *at)
        for name, maximum in creature.resources.items():
            await connection.execute(
                "insert into game.resources values ($1, $2, $3, $4, $5)", *at, name, maximum - maximum // 2, maximum
            )
            await connection.execute(
                "insert into game.resource_events (adventure, creature, resource, delta, why) "
                "values ($1, $2, $3, $4, 'spent before')",
                *(*at, name, -(maximum // 2)),
            )
