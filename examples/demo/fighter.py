"""The first story: a fighter dies by mistake, and lives again."""

from __future__ import annotations

from collections.abc import Callable

from examples.agents.narrator import Narrator
from examples.client import Answer, Refused
from examples.demo.cast import GameCast
from examples.demo.stage import Stage
from examples.demo.telling import Names, Telling, short, when
from examples.table.example import AGENT, OWNER


async def play_fighter(stage: Stage, cast: GameCast, tell: Telling) -> None:
    """Play it against the running services, and tell it."""
    campaign, game = stage.campaign("game"), await stage.game()
    await game.set_up(cast.scene)
    rogues_player, paladins_player = str(cast.rogue.player), str(cast.paladin.player)
    owner, rogue, paladin = [await stage.seat(sub) for sub in (OWNER, rogues_player, paladins_player)]
    fighters_player = await stage.seat(str(cast.fighter.player))

    tell.title(f"The fighter who died by mistake: {cast.scene.title}")
    await _tell_party(stage, cast, tell)

    screen = stage.screen(str(cast.fighter.player), cast.scene.adventure)
    tell.line(f"The screen of {cast.fighter.player}, who plays the fighter: {screen}", "dim")

    async with fighters_player.listening(campaign) as first, paladin.listening(campaign) as second:
        tell.scene(f"It is {rogues_player}'s turn. The narrator misreads the round.")
        narrator = await Narrator.begin(await stage.seat(AGENT, "agent"), campaign, rogues_player)
        struck = await narrator.strike(cast.scene.adventure, cast.fighter.id, cast.blow)
        died = await narrator.let_die(cast.scene.adventure, cast.fighter.id)
        entries = [await owner.get(f"/v1/entries/{entry['id']}") for entry in (struck, died)]
        for entry in entries:
            tell.entry(entry)
        await _tell_creature(stage, cast, tell)

        tell.scene(f"{paladins_player} plays the paladin, and would take {rogues_player}'s turn back.")
        try:
            await paladin.undo(campaign, narrator.interaction, reason="this is not fair")
        except Refused as refused:
            tell.line(f"{refused.status}: {refused.problem['detail']}", "yellow")
        log = await owner.get(f"/v1/campaigns/{campaign}/security-log")
        tell.line(f"The security log has it: {_last_refusal(log, paladins_player)}", "dim")

        tell.scene(f"{rogues_player} takes the whole turn back, with one call.")
        undone = await rogue.undo(campaign, narrator.interaction, reason="it was the other one", category="misread")
        names = Names(entries, narrator.run)
        tell.receipts(undone["record"], names)
        await _tell_creature(stage, cast, tell)

        tell.scene("Every screen is put right.")
        for player, heard in ((fighters_player, first), (paladin, second)):
            for entry in reversed(entries):
                data = await heard.first("broadcast.interaction_reverted", _about(entry))
                tell.line(
                    f"{player.sub} heard {data['type']}: {names[data['invocationId']]}, source {data['source']}, "
                    f"whole turn taken back: {'yes' if data['interactionComplete'] else 'not yet'}"
                )

    tell.scene("And a second click?")
    again = await rogue.undo(campaign, narrator.interaction, reason="click")
    tell.line(f"reverted: {str(again['reverted']).lower()}, {again.get('skipReason')}")
    await narrator.end()
    tell.line(f"All of it is in the narrator's run, {narrator.run}", "dim")


async def _tell_party(stage: Stage, cast: GameCast, tell: Telling) -> None:
    game = await stage.game()
    for creature in (cast.fighter, cast.paladin, cast.rogue, cast.monster):
        row = await game.creature(cast.scene.adventure, creature.id)
        whose = f"played by {row['player']}" if row["player"] else "a monster"
        tell.line(f"{row['name']}, {row['hp']} of {row['max_hp']} hp, {whose}")


async def _tell_creature(stage: Stage, cast: GameCast, tell: Telling) -> None:
    """What the database says, past every service of ours."""
    row = await (await stage.game()).creature(cast.scene.adventure, cast.fighter.id)
    tell.line(
        f"In the database: {row['name']} has {row['hp']} of {row['max_hp']} hp, conditions: {short(row['conditions'])}",
        "bold",
    )


def _about(entry: Answer) -> Callable[[Answer], bool]:
    return lambda data: bool(data["invocationId"] == entry["id"])


def _last_refusal(log: Answer, sub: str) -> str:
    item = next((item for item in log["items"] if item["sub"] == sub), None)
    return f"{when(item['at'])}, {item['sub']} tried to {item['what']}" if item else "nothing"
