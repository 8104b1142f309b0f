"""E1: the fighter dies by mistake and lives again, and every screen is put right."""

import pytest

from examples.agents.narrator import Narrator
from examples.client import Caller, Refused
from examples.demo.cast import GameCast, game_cast
from examples.demo.stage import Stage
from examples.table.example import AGENT, OWNER
from examples.table.game import Game
from takeback.ids import new_id
from tests.story.scene import ADVENTURE, CALLS, SCENE


class Table:
    """A table at which the fighter has just died in the rogue's turn."""

    def __init__(self, stage: Stage, game: Game, cast: GameCast, narrator: Narrator, entries: list[str]) -> None:
        self.stage = stage
        self.campaign = stage.campaign("game")
        self.game = game
        self.cast = cast
        self.narrator = narrator
        self.entries = entries

    async def fighter(self) -> tuple[int, list[str]]:
        row = await self.game.creature(self.cast.scene.adventure, self.cast.fighter.id)
        return row["hp"], row["conditions"]

    async def player_of(self, name: str) -> Caller:
        return await self.stage.seat(getattr(self.cast, name).player)


@pytest.fixture
async def table(stage: Stage, request: pytest.FixtureRequest) -> Table:
    cast = game_cast(sum(map(ord, request.node.name)))
    game = await stage.game()
    await game.set_up(cast.scene)
    narrator = await Narrator.begin(await stage.seat(AGENT, "agent"), stage.campaign("game"), str(cast.rogue.player))
    struck = await narrator.strike(cast.scene.adventure, cast.fighter.id, cast.blow)
    died = await narrator.let_die(cast.scene.adventure, cast.fighter.id)
    table = Table(stage, game, cast, narrator, [struck["id"], died["id"]])
    assert await table.fighter() == (0, ["unconscious", "dead"])
    return table


async def test_the_fighter_lives_again_and_both_players_hear_it(table: Table) -> None:
    """E1, N5, G9: one call, the database as before, `interaction_reverted` on both screens, a second click changes nothing."""
    rogue, paladin = await table.player_of("rogue"), await table.player_of("paladin")
    fighter = await table.player_of("fighter")
    async with fighter.listening(table.campaign) as first, paladin.listening(table.campaign) as second:
        undone = await rogue.undo(table.campaign, table.narrator.interaction, reason="misread", category="misread")
        assert undone["reverted"] is True
        assert await table.fighter() == (table.cast.fighter.hp, [])
        for heard in (first, second):
            told = [
                await heard.first("broadcast.interaction_reverted", lambda data, e=entry: data["invocationId"] == e)
                for entry in reversed(table.entries)
            ]
            assert [data["toolName"] for data in told] == ["modify_creature", "damage_creature"]
            assert [data["interactionComplete"] for data in told] == [False, True]
            assert {data["source"] for data in told} == {"system"}
    again = await rogue.undo(table.campaign, table.narrator.interaction)
    assert (again["reverted"], again["skipReason"]) == (False, "already_reverted")


async def test_the_paladins_player_cannot_take_back_the_rogues_turn(table: Table) -> None:
    """G7: 403, nothing changed, and the owner reads it in the security log."""
    paladin = await table.player_of("paladin")
    with pytest.raises(Refused) as refused:
        await paladin.undo(table.campaign, table.narrator.interaction, reason="unfair")
    assert (refused.value.status, refused.value.slug) == (403, "not-authorised")
    assert await table.fighter() == (0, ["unconscious", "dead"])
    log = await (await table.stage.seat(OWNER)).get(f"/v1/campaigns/{table.campaign}/security-log")
    assert paladin.sub in {item["sub"] for item in log["items"]}


async def test_the_owner_may_take_back_anybodys_turn(table: Table) -> None:
    """G7: the campaign's owner, in that capacity."""
    owner = await table.stage.seat(OWNER)
    undone = await owner.undo(table.campaign, table.narrator.interaction, reason="table talk")
    assert undone["record"]["authority"] == "owner"
    assert await table.fighter() == (table.cast.fighter.hp, [])


async def test_a_member_of_both_campaigns_finds_nothing_across_them(table: Table) -> None:
    """G7: an entry of another campaign is 404, the same as what does not exist."""
    deal, both = table.stage.campaign("deal"), "dana"
    await (await table.stage.seat(OWNER)).put(f"/v1/campaigns/{table.campaign}/members/{both}", {"role": "owner"})
    owner_of_deal = await table.stage.seat(both)
    with pytest.raises(Refused) as across:
        await owner_of_deal.undo(deal, table.narrator.interaction)
    with pytest.raises(Refused) as nowhere:
        await owner_of_deal.undo(deal, new_id("int"))
    assert across.value.status == nowhere.value.status == 404
    assert across.value.problem == nowhere.value.problem


async def test_each_broadcast_of_the_table_is_kept_with_its_entry(table: Table) -> None:
    """J5: what the clients were told stands in the journal."""
    owner = await table.stage.seat(OWNER)
    entry = await owner.get(f"/v1/entries/{table.entries[1]}")
    assert [broadcast["type"] for broadcast in entry["broadcasts"]] == ["combat_state_update"]


async def test_all_fifteen_tools_are_taken_back_through_the_recorder(stage: Stage) -> None:
    """E1: each tool once in one run; one plan, one approval, and every row is as it was."""
    campaign, game, owner = stage.campaign("game"), await stage.game(), await stage.seat(OWNER)
    await game.set_up(SCENE)
    before = await game.rows(ADVENTURE)
    narrator = await Narrator.begin(await stage.seat(AGENT, "agent"), campaign, OWNER)
    order = ["start_combat", "advance_turn", "end_combat"]
    for tool in [*order, *(tool for tool in CALLS if tool not in order)]:
        entry = await narrator.use(f"table/{tool}", adventure=ADVENTURE, **CALLS[tool])
        assert entry["status"] == "committed", entry
    plan = await owner.plan(campaign, run=narrator.run)
    assert len(plan["steps"]) == len(CALLS) == 15
    assert not any(step["conflict"] for step in plan["steps"])
    done = await owner.decide_plan(plan, reason="a new evening")
    assert done["status"] == "completed", await owner.record(plan["id"])
    assert await game.rows(ADVENTURE) == before
