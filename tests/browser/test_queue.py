"""The queue of reviews where there are more runs than one page shows."""

from playwright.async_api import expect

from examples.agents.narrator import Narrator
from examples.demo.cast import game_cast
from examples.table.example import AGENT, OWNER
from notifier.queue import PAGE
from tests.browser.people import Console, Theatre


async def test_the_queue_goes_on_by_keyboard_until_every_run_was_shown(theatre: Theatre, console: Console) -> None:
    """U2, N2: nothing that can still be taken back is out of reach."""
    cast, campaign = game_cast(74), theatre.stage.campaign("game")
    await (await theatre.stage.game()).set_up(cast.scene)
    agent = await theatre.stage.seat(AGENT, "agent")
    runs = set()
    for step in range(PAGE + 1):
        narrator = await Narrator.begin(agent, campaign, OWNER)
        await narrator.move(cast.scene.adventure, cast.fighter.id, step, 0)
        runs.add(narrator.run)
    page = await console.window(OWNER)
    await console.open(page, f"/console/campaigns/{campaign}/reviews")
    shown: list[str] = []
    while True:
        rows = page.locator("[data-run]")
        shown += [str(await row.get_attribute("data-run")) for row in await rows.all()]
        more = page.get_by_role("link", name="More reviews")
        if not await more.count():
            break
        before = page.url
        await more.focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url(lambda url, before=before: url != before)  # and for all that stands on it
    assert len(shown) == len(set(shown))
    assert runs <= set(shown)
    await page.get_by_role("link", name="Back to the first").click()
    await expect(page.locator("[data-run]")).to_have_count(PAGE)
    assert console.errors == []
