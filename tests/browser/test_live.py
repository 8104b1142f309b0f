"""A page that follows: it draws itself anew, and comes back after a stream that was refused."""

from playwright.async_api import Route, expect

from tests.browser.people import Console, Theatre


async def test_a_page_asks_for_another_ticket_when_the_stream_is_refused(console: Console, theatre: Theatre) -> None:
    """N6: a stream that answers 503 is tried again by the page; what happened meanwhile is drawn then."""
    cast, narrator = await theatre.table(61)
    page = await console.window(str(cast.rogue.player))
    refused = 0

    async def refuse_twice(route: Route) -> None:
        nonlocal refused
        refused += 1
        if refused <= 2:
            await route.fulfill(status=503, body="")
        else:
            await route.continue_()

    await page.route("**/stream?*", refuse_twice)
    await console.open(page, f"/console/runs/{narrator.run}")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    assert refused == 3
    await expect(page.get_by_text("Nothing has happened yet")).to_be_visible()
    await narrator.move(cast.scene.adventure, cast.rogue.id, 3, 4)
    await expect(page.locator(".turn.latest .entry")).to_have_count(1)
    await expect(page.locator("#announce")).to_have_text("This page has changed.")


async def test_what_somebody_has_unfolded_and_focused_stays_when_the_page_draws_itself_anew(
    console: Console, theatre: Theatre
) -> None:
    """U2: a page that changes by itself takes nothing out of a person's hands."""
    cast, narrator = await theatre.table(62)
    await narrator.move(cast.scene.adventure, cast.rogue.id, 3, 4)
    page = await console.window(str(cast.rogue.player))
    await console.open(page, f"/console/runs/{narrator.run}")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    undo = page.locator(".turn.latest").get_by_role("button", name="Undo")
    await undo.focus()
    await narrator.strike(cast.scene.adventure, cast.fighter.id, 1)
    await expect(page.locator(".turn.latest .entry")).to_have_count(2)
    await expect(undo).to_be_focused()
