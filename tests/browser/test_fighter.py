"""The first story in the browser: Undo on the latest turn, while two players' screens watch."""

import asyncio

from playwright.async_api import Page, Route, expect

from tests.browser.people import Console, Theatre


async def hp_of(page: Page, creature: str) -> int:
    shown = await page.locator(f'[data-creature="{creature}"]').get_attribute("data-hp")
    return int(shown or -1)


async def watching(console: Console, theatre: Theatre, player: str, adventure: str) -> Page:
    page = await console.window(None)
    await page.goto(theatre.screen(player, adventure))
    await expect(page.locator("#live")).to_have_text("live")
    return page


async def test_undo_on_the_latest_turn_lets_the_fighter_live_again_on_every_screen(
    console: Console, theatre: Theatre
) -> None:
    """E1, U1, N5: the dialog lists what is taken back; screens drop the turn's messages; HP on the page is the database's."""
    cast, narrator = await theatre.table(71)
    fighter, adventure = cast.fighter.id, cast.scene.adventure
    screens = [
        await watching(console, theatre, str(player), adventure)
        for player in (cast.fighter.player, cast.paladin.player)
    ]
    page = await console.window(str(cast.rogue.player))
    await console.open(page, f"/console/runs/{narrator.run}")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    struck = await narrator.strike(adventure, fighter, cast.blow)
    died = await narrator.let_die(adventure, fighter)
    for screen in screens:
        await expect(screen.locator("#feed .gm")).to_have_count(2)
        await expect(screen.locator(f'[data-creature="{fighter}"] .conditions')).to_contain_text("dead")
        assert await hp_of(screen, fighter) == 0
    latest = page.locator(".turn.latest")
    await expect(latest.locator(".entry")).to_have_count(2)
    await latest.get_by_role("button", name="Undo").focus()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading", name="Will be taken back")).to_be_visible()
    for entry in (struck, died):
        await expect(dialog.locator("ol li", has_text=entry["label"])).to_have_count(1)
    await expect(dialog.get_by_role("heading", name="Will not be taken back")).to_be_visible()
    await expect(dialog.get_by_text("Nothing is left out.")).to_be_visible()
    await dialog.get_by_label("Reason").fill("it was the other one")
    await dialog.get_by_label("misread").focus()
    await page.keyboard.press("Space")
    await dialog.get_by_role("button", name="Take back 2 calls").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Taken back, and checked.")).to_be_visible()
    await expect(page.locator('.entry[data-status="reverted"]')).to_have_count(2)
    row = await (await theatre.stage.game()).creature(adventure, fighter)
    assert row["hp"] == cast.fighter.hp
    for screen in screens:
        await expect(screen.locator("#feed [data-turn]")).to_have_count(0)
        await expect(screen.locator(f'[data-creature="{fighter}"]')).to_have_attribute("data-hp", str(row["hp"]))
        assert await hp_of(screen, fighter) == row["hp"]
    await expect(page.locator(".turn.latest").get_by_role("button", name="Undo")).to_have_count(0)
    assert console.errors == []


async def test_a_partial_undo_keeps_the_messages_on_the_screen_and_marks_what_is_gone(
    console: Console, theatre: Theatre
) -> None:
    """N5: only when the whole interaction is taken back do its messages leave the feed."""
    cast, narrator = await theatre.table(72)
    screen = await watching(console, theatre, str(cast.paladin.player), cast.scene.adventure)
    moved = await narrator.move(cast.scene.adventure, cast.rogue.id, 9, 9)
    struck = await narrator.strike(cast.scene.adventure, cast.fighter.id, 3)
    await expect(screen.locator("#feed .gm")).to_have_count(2)
    page = await console.window(str(cast.rogue.player))
    await console.open(page, f"/console/entries/{struck['id']}")
    await page.get_by_role("button", name="Take this back…").click()
    await page.get_by_role("button", name="Take it back").click()
    await expect(page.get_by_role("heading", name="Taken back", exact=True)).to_be_visible()
    await expect(screen.locator(f'[data-invocation="{struck["id"]}"]')).to_have_class("gm taken-back")
    await expect(screen.locator(f'[data-invocation="{moved["id"]}"]')).to_have_class("gm")
    await expect(screen.get_by_text("Part of this turn was taken back.")).to_be_visible()
    row = await (await theatre.stage.game()).creature(cast.scene.adventure, cast.fighter.id)
    assert await hp_of(screen, cast.fighter.id) == row["hp"] == cast.fighter.hp
    assert console.errors == []


async def test_a_state_that_comes_late_does_not_stand_over_what_came_since(console: Console, theatre: Theatre) -> None:
    """N5: after a reversal the screen asks how everybody stands, and the next blow is heard before it has the answer."""
    cast, narrator = await theatre.table(75)
    fighter, adventure = cast.fighter, cast.scene.adventure
    screen = await watching(console, theatre, str(cast.paladin.player), adventure)
    await narrator.strike(adventure, fighter.id, 3)
    await expect(screen.locator("#feed .gm")).to_have_count(1)
    read, go_on = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        first, answer = not read.is_set(), await route.fetch()
        read.set()
        if first:
            await go_on.wait()
        await route.fulfill(response=answer)

    await screen.route("**/state", late)
    await (await theatre.stage.seat(str(cast.rogue.player))).undo(narrator.campaign, narrator.interaction)
    await read.wait()
    await narrator.strike(adventure, fighter.id, 5)
    await expect(screen.locator(f'[data-creature="{fighter.id}"]')).to_have_attribute("data-hp", str(fighter.hp - 5))
    async with screen.expect_event("requestfinished"):
        go_on.set()
    await screen.evaluate("fetch(location.pathname + '/state').then(answer => answer.json())")  # and what came is drawn
    assert await hp_of(screen, fighter.id) == fighter.hp - 5


async def test_the_button_is_there_for_everybody_and_the_server_alone_decides_who_may(
    console: Console, theatre: Theatre
) -> None:
    """U1, G7: the paladin's player sees the button, is refused in words, and the owner finds it in the security log."""
    cast, narrator = await theatre.table(73)
    await narrator.strike(cast.scene.adventure, cast.fighter.id, 2)
    page = await console.window(str(cast.paladin.player))
    await console.open(page, f"/console/runs/{narrator.run}")
    await page.locator(".turn.latest").get_by_role("button", name="Undo").click()
    await page.get_by_role("dialog").get_by_role("button", name="Take back 1 call").click()
    await expect(page.get_by_role("heading", name="That is not yours to do")).to_be_visible()
    await expect(page.get_by_text("Nothing was changed.")).to_be_visible()
    owner = await console.window("gm")
    await console.open(owner, f"/console/campaigns/{narrator.campaign}/security")
    await expect(owner.locator("#security li", has_text=str(cast.paladin.player)).first).to_contain_text("tried to")
    row = await (await theatre.stage.game()).creature(cast.scene.adventure, cast.fighter.id)
    assert row["hp"] == cast.fighter.hp - 2


async def test_the_screen_of_an_adventure_that_nobody_plays_says_so(console: Console, theatre: Theatre) -> None:
    """N5: an address with a slip in it is answered in words, not with an empty table."""
    page = await console.window(None)
    answer = await page.goto(theatre.screen("ada", "no-such-adventure"))
    assert answer is not None and answer.status == 404
    await expect(page.locator("body")).to_contain_text("There is no adventure 'no-such-adventure' at this table.")
