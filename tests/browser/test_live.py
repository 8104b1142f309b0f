"""A page that follows: it draws itself anew, and comes back after a stream that was refused."""

import asyncio

from playwright.async_api import Response, Route, expect

from tests.browser.people import Console, Theatre


def drawn_anew(answer: Response) -> bool:
    """Whether it is the page itself, asked for by its own script."""
    return answer.request.resource_type == "fetch" and answer.url == answer.frame.url


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


async def test_a_page_whose_drawing_was_refused_is_drawn_a_little_later(console: Console, theatre: Theatre) -> None:
    """U2: the last thing that happened is not missing until the next one, because the server was busy for a moment."""
    cast, narrator = await theatre.table(66)
    page = await console.window(str(cast.rogue.player))
    async with page.expect_response(drawn_anew):  # the opened stream asks for it
        await console.open(page, f"/console/runs/{narrator.run}")
    busy, refused = True, asyncio.Event()

    async def refuse(route: Route) -> None:
        if busy:
            await route.fulfill(status=503, body="")
            refused.set()
        else:
            await route.continue_()

    await page.route(page.url, refuse)
    await narrator.move(cast.scene.adventure, cast.rogue.id, 3, 4)
    await refused.wait()
    busy = False
    await expect(page.locator(".turn.latest .entry")).to_have_count(1)
    await expect(page.locator("#announce")).to_have_text("This page has changed.")
    assert console.errors == []


async def test_a_press_that_has_begun_is_heard_though_the_page_draws_itself_anew_meanwhile(
    console: Console, theatre: Theatre
) -> None:
    """U2: what is under a finger stays there until it is lifted."""
    cast, narrator = await theatre.table(65)
    await narrator.move(cast.scene.adventure, cast.rogue.id, 3, 4)
    page = await console.window(str(cast.rogue.player))
    async with page.expect_response(drawn_anew):  # the opened stream asks for it
        await console.open(page, f"/console/runs/{narrator.run}")
    await page.locator(".turn.latest").get_by_role("button", name="Undo").hover()
    await page.mouse.down()
    async with page.expect_response(drawn_anew):
        await narrator.strike(cast.scene.adventure, cast.fighter.id, 1)
    await page.evaluate("fetch(location.href).then(answer => answer.text())")  # and what came would be drawn
    await page.mouse.up()
    await expect(page.get_by_role("dialog").get_by_role("heading", name="Will be taken back")).to_be_visible()
    await expect(page.locator(".turn.latest .entry")).to_have_count(2)
    assert console.errors == []


async def test_what_a_run_builds_on_is_confirmed_and_the_run_is_paused_from_its_pages(
    console: Console, theatre: Theatre
) -> None:
    """U2, G2: a link that nobody declared is confirmed under the person's name; a paused run holds still and goes on."""
    cast, narrator = await theatre.table(63)
    for step in (3, 4):
        await narrator.move(cast.scene.adventure, cast.rogue.id, step, 4)
    page = await console.window("gm")
    await console.open(page, f"/console/runs/{narrator.run}/graph?links=all")
    await expect(page.locator("svg.picture .arc")).to_have_count(1)
    await page.get_by_role("button", name="Confirm that e2 builds on e1").click()
    await expect(page.get_by_text("The link is confirmed, under your name.")).to_be_visible()
    await expect(page.get_by_text("gm confirmed it")).to_be_visible()
    await expect(page.locator("svg.picture .arc.confirmed")).to_have_count(1)
    await page.get_by_role("link", name="Timeline").click()
    for word, state in (("Pause", "paused"), ("Go on", "open"), ("Close", "closed")):
        async with page.expect_navigation():  # the stream may show the new state on the page that is left
            await page.get_by_role("button", name=word, exact=True).click()
        await expect(page.locator("#run-meta .state")).to_have_attribute("data-state", state)
    assert console.errors == []


async def test_words_about_time_are_drawn_anew_while_nothing_happens(console: Console, theatre: Theatre) -> None:
    """U2: "5 min ago" does not stay for an hour, and nobody is told that the page has changed."""
    _, narrator = await theatre.table(64)
    page = await console.window("gm")
    await page.clock.install()
    async with page.expect_response(drawn_anew):  # the opened stream asks for it
        await console.open(page, f"/console/runs/{narrator.run}")
    async with page.expect_response(drawn_anew):  # nothing but time does
        await page.clock.run_for(300_000)
    await expect(page.locator("#announce")).to_be_empty()
    assert console.errors == []
