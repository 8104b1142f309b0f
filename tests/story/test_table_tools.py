"""Each of the game table's 15 tools, alone: what it changed is taken back to the exact rows."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from examples.table.game import Game
from examples.table.server import game_server
from takeback.extension import EXTENSION
from takeback.toolserver import ToolServer
from tests.story.scene import ADVENTURE, CALLS, FIGHTER, SCENE


@pytest.fixture
async def pool(empty_shared_database: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(
        empty_shared_database, min_size=1, max_size=4, server_settings={"search_path": "game"}
    ) as pool:
        yield pool


@pytest.fixture
async def game(pool: asyncpg.Pool) -> Game:
    await pool.execute("drop schema if exists game cascade")
    game = Game(pool)
    await game.prepare()
    await game.set_up(SCENE)
    return game


@pytest.fixture
async def server(game: Game, pool: asyncpg.Pool) -> ToolServer:
    server = game_server(pool)
    await server.prepare()
    return server


async def call(server: ToolServer, tool: str, key: str, **arguments: Any) -> dict[str, Any]:
    """One call, as the recorder makes it; answers what the result declares."""
    meta = {EXTENSION: {"entry": key, "idempotencyKey": key}}
    answer = await server.call(tool, {"adventure": ADVENTURE, **arguments}, meta)
    assert answer["isError"] is False, answer
    return answer["_meta"][EXTENSION]


async def undo(server: ToolServer, offer: dict[str, Any], key: str, **how: Any) -> dict[str, Any]:
    return await server.undo(
        {
            "compensationToken": offer["compensationToken"],
            "ifVersion": offer["ifVersion"],
            "idempotencyKey": key,
            **how,
        }
    )


async def fight(server: ToolServer, tool: str) -> None:
    if tool in ("end_combat", "advance_turn"):
        await call(server, "start_combat", "ent_before", **CALLS["start_combat"])


@pytest.mark.parametrize("tool", CALLS)
async def test_an_undo_brings_back_the_exact_rows_and_its_own_undo_those_of_the_call(
    tool: str, server: ToolServer, game: Game
) -> None:
    """E1, S12: 15 write tools, each with its snapshot; a reversal has its own undo, which gives the state before it."""
    await fight(server, tool)
    before = await game.rows(ADVENTURE)
    declared = await call(server, tool, "ent_1", **CALLS[tool])
    called = await game.rows(ADVENTURE)
    assert called != before
    assert declared["undo"]["kind"] == "compensate"
    reverted = await undo(server, declared["undo"], "ent_2")
    assert reverted["outcome"] == "reverted"
    assert await game.rows(ADVENTURE) == before
    assert (await undo(server, reverted["undo"], "ent_3"))["outcome"] == "reverted"
    assert await game.rows(ADVENTURE) == called


def test_the_tools_are_ranked_by_their_blast_radius() -> None:
    """E1: seed A's tiers, by seed A's names."""
    server = game_server(None)  # type: ignore[arg-type]  # nothing is called
    tiers: dict[str, set[str]] = {}
    for tool in server.tools():
        if tool.get("annotations") == {"readOnlyHint": False}:
            tiers.setdefault(tool["_meta"][EXTENSION]["tier"], set()).add(tool["name"])
    assert tiers == {
        "critical": {"end_adventure", "start_combat", "modify_creature"},
        "high": {"advance_chapter", "activate_dungeon", "end_combat", "rest", "consume_resource", "damage_creature"},
        "medium": {"advance_turn", "reveal_fog", "write_memory", "grant_item", "update_quest"},
        "low": {"move_token"},
    }


async def test_end_adventure_remembers_the_achievements_held_before(server: ToolServer, game: Game) -> None:
    """E1: completion state, the achievements held before, the active episode; one held before stays."""
    declared = await call(server, "end_adventure", "ent_1", **CALLS["end_adventure"])
    before = declared["effect"]["before"]["fields"]
    assert before["completed"] is False
    assert before["achievements"] == ["First blood"]
    assert before["episode"] == "The gate"
    await undo(server, declared["undo"], "ent_2")
    assert (await game.rows(ADVENTURE))["achievements"] == [(ADVENTURE, "First blood")]


async def test_the_undo_of_a_rest_removes_only_the_events_that_it_added(server: ToolServer, game: Game) -> None:
    """E1: `rest` remembers every resource row and the events that existed before."""
    earlier = (await game.rows(ADVENTURE))["resource_events"]
    declared = await call(server, "rest", "ent_1", **CALLS["rest"])
    assert len((await game.rows(ADVENTURE))["resource_events"]) > len(earlier)
    await undo(server, declared["undo"], "ent_2")
    assert (await game.rows(ADVENTURE))["resource_events"] == earlier


async def test_an_undo_does_not_touch_what_was_spent_after_the_rest(server: ToolServer, game: Game) -> None:
    """G8: changed since means conflict, and nothing changed."""
    declared = await call(server, "rest", "ent_1", **CALLS["rest"])
    await call(server, "consume_resource", "ent_2", **CALLS["consume_resource"])
    now = await game.rows(ADVENTURE)
    assert (await undo(server, declared["undo"], "ent_3"))["outcome"] == "conflict"
    assert await game.rows(ADVENTURE) == now


async def test_moving_a_token_does_not_stand_in_the_way_of_bringing_its_creature_back(
    server: ToolServer, game: Game
) -> None:
    """Where a creature stands and whether it lives are two records."""
    died = await call(server, "modify_creature", "ent_1", **CALLS["modify_creature"])
    await call(server, "move_token", "ent_2", **CALLS["move_token"])
    assert (await undo(server, died["undo"], "ent_3"))["outcome"] == "reverted"
    fighter = await game.creature(ADVENTURE, FIGHTER)
    assert (fighter["hp"], fighter["conditions"]) == (31, [])


async def test_every_client_is_told_how_the_fight_stands(server: ToolServer) -> None:
    """J5, N5: the broadcast that was sent comes with the result."""
    declared = await call(server, "modify_creature", "ent_1", **CALLS["modify_creature"])
    [broadcast] = declared["broadcasts"]
    assert broadcast["type"] == "combat_state_update"
    fallen = next(creature for creature in broadcast["creatures"] if creature["id"] == FIGHTER)
    assert (fallen["hp"], fallen["conditions"]) == (0, ["dead"])


async def test_what_a_tool_refuses_changes_nothing(server: ToolServer, game: Game) -> None:
    """J2: a tool's own error is an answer, and nothing of the call is left."""
    before = await game.rows(ADVENTURE)
    for tool, arguments in (
        ("end_combat", {}),
        ("modify_creature", {"creature": "nobody", "hp": 0}),
        ("consume_resource", {"creature": FIGHTER, "resource": "hit dice", "amount": 99, "why": "greed"}),
        ("rest", {"creature": FIGHTER, "kind": "endless"}),
    ):
        answer = await server.call(tool, {"adventure": ADVENTURE, **arguments})
        assert answer["isError"] is True
    assert await game.rows(ADVENTURE) == before
