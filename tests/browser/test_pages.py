"""Every page: readable by machines that read aloud, by keyboard, on a phone, in the dark; and a picture of each."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from takeback.calendars import DAYS
from takeback.example import Installation
from tests.browser.people import PHONE, WIDE, Console, Theatre

PICTURES = os.environ.get("TAKEBACK_SCREENSHOTS")
"""The folder for the pictures; `make screenshots` names docs/screens."""
PAGES = (
    "sign-in", "campaigns", "campaign", "run", "undo", "graph", "review", "reviews", "approvals", "approval", "plan",
    "record", "entry", "questions", "security", "nothing", "empty",
)  # fmt: skip
SHOWN = {*PAGES, "run-dark", "graph-dark", "plan-dark", "run-phone", "plan-phone", "reviews-phone", "questions-phone"}
FOCUSABLE = "a[href], button, input:not([type=hidden]), summary, pre[tabindex]"
REACHED = """
() => {
    const at = document.activeElement;
    return at === document.body ? null : [...document.querySelectorAll('*')].indexOf(at);
}
"""
WANTED = """
selector => {
    const folded = one => one.closest('details:not([open]) > :not(summary)');
    const first = one => {
        const group = [...document.getElementsByName(one.name)];
        return one === (group.find(other => other.checked) ?? group[0]);
    };
    return [...document.querySelectorAll('*')].map((one, place) => [one, place])
        .filter(([one]) => one.matches(selector) && one.checkVisibility({ visibilityProperty: true }) && !folded(one))
        .filter(([one]) => one.type !== 'radio' || first(one))
        .map(([, place]) => place);
}
"""
"""What the Tab key must come to: of a group of radio buttons one, the arrows do the rest."""
SOURCE = "at => document.querySelectorAll('*')[at].outerHTML.slice(0, 120)"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def places(theatre: Theatre) -> AsyncIterator[dict[str, tuple[str, str | None]]]:
    """Where each page is, and who looks at it."""
    sale = await theatre.sale(91, agreed=True)
    seller, dana = sale.cast.seller, await theatre.stage.seat("dana")
    always = {"zone": "UTC", "weekly": {day: [["00:00", "24:00"]] for day in DAYS}}
    for sub, calendar in ((seller, {**always, "absences": away(days=9)}), ("dana", always)):
        await dana.put(f"/v1/campaigns/{sale.campaign}/calendars/{sub}", calendar)
    waiting = await sale.agent.welcome(sale.cast.address, sale.cast.customer)
    done = await sale.seller.decide_plan(
        await sale.seller.plan(sale.campaign, entries=[sale.entries["meeting"]["id"]]),
        reason="nobody signed",
        category="hallucinated",
    )
    plan = await sale.seller.plan(
        sale.campaign, entries=[sale.entries[name]["id"] for name in ("stage", "mail", "refund")]
    )
    cast, narrator = await theatre.table(92)
    await narrator.strike(cast.scene.adventure, cast.fighter.id, cast.blow)
    await narrator.let_die(cast.scene.adventure, cast.fighter.id)
    paladin = await theatre.stage.seat(str(cast.paladin.player))
    stranger = await paladin.plan(narrator.campaign, interaction=narrator.interaction)
    with pytest.raises(Exception, match="403"):
        await paladin.decide_plan(stranger)
    empty = await dana.post("/v1/campaigns", {"name": "Not yet begun"})
    campaign, run = f"/console/campaigns/{sale.campaign}", f"/console/runs/{sale.agent.run}"
    table = f"/console/campaigns/{narrator.campaign}"
    yield {
        "sign-in": ("/console/sign-in", None),
        "campaigns": ("/", "dana"),
        "campaign": (campaign, "dana"),
        "run": (run, seller),
        "undo": (f"/console/runs/{narrator.run}", str(cast.rogue.player)),
        "graph": (f"{run}/graph", seller),
        "review": (f"{run}/review", seller),
        "reviews": (f"{campaign}/reviews", seller),
        "approvals": (f"{campaign}/approvals", "dana"),
        "approval": (f"/console/approvals/{waiting['approval']}", "dana"),
        "plan": (f"/console/plans/{plan['id']}", seller),
        "record": (f"/console/plans/{done['id']}/record", seller),
        "entry": (f"/console/entries/{sale.entries['stage']['id']}", seller),
        "questions": (f"{campaign}/questions", "dana"),
        "security": (f"{table}/security", "gm"),
        "nothing": ("/console/runs/run_of_nobody", "dana"),
        "empty": (f"/console/campaigns/{empty['id']}", "dana"),
    }


def away(days: int) -> str:
    """An iCalendar file: nobody is there today and so many days."""
    today = datetime.now(UTC).date()
    event = f"UID:1\r\nDTSTART;VALUE=DATE:{today:%Y%m%d}\r\nDTEND;VALUE=DATE:{today + timedelta(days=days):%Y%m%d}"
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\n{event}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def windows(browser: Browser, installation: Installation) -> AsyncIterator["Windows"]:
    """One window for each person, kept for all pages."""
    windows = Windows(Console(browser, installation))
    yield windows
    await windows.console.close()


class Windows:
    """Windows by who looks."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._windows: dict[str | None, Page] = {}

    async def of(self, sub: str | None) -> Page:
        """The window of *sub*, as wide as a desk's and in daylight."""
        if sub not in self._windows:
            self._windows[sub] = await self.console.window(sub)
        page = self._windows[sub]
        await page.set_viewport_size(WIDE)
        await page.emulate_media(color_scheme="light")
        return page


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_for_everybody(windows: Windows, places: dict[str, tuple[str, str | None]], name: str) -> None:
    """U2: axe finds nothing, by day and by night; every action is on the keyboard's way; 360 pixels are enough."""
    path, sub = places[name]
    page = await windows.of(sub)
    await page.goto(windows.console.url + path)
    if name == "undo":
        await page.locator(".turn.latest").get_by_role("button", name="Undo").click()
        await expect(page.get_by_role("dialog").get_by_role("button", name="Take back")).to_be_visible()
    elif PICTURES and await page.locator("[data-live]").count():
        await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    await picture(page, name)
    if name != "undo":  # a dialog holds the focus: the story plays it by keyboard
        assert await unreached(page) == []
    assert await violations(page) == []
    await page.emulate_media(color_scheme="dark")
    await picture(page, f"{name}-dark")
    assert await violations(page) == []
    await page.set_viewport_size(PHONE)
    await picture(page, f"{name}-phone")
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert windows.console.errors == []


async def violations(page: Page) -> list[str]:
    """What axe has to say of the page."""
    found = await Axe().run(page, options={"resultTypes": ["violations"]})
    return [f"{one['id']} {one['nodes'][0]['target']}: {one['help']}" for one in found.response["violations"]]


async def unreached(page: Page) -> list[str]:
    """What the Tab key does not come to."""
    wanted = set(await page.evaluate(WANTED, FOCUSABLE))
    await page.evaluate("document.activeElement.blur()")
    reached: set[int] = set()
    for _ in range(len(wanted) + 5):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate(REACHED) or 0)
        if wanted <= reached:
            return []
    return [await page.evaluate(SOURCE, at) for at in sorted(wanted - reached)]


async def picture(page: Page, name: str) -> None:
    """A picture of the page as it is, where somebody asked for pictures; small enough for a repository."""
    if PICTURES is None or name not in SHOWN:
        return
    Path(PICTURES).mkdir(parents=True, exist_ok=True)
    if not await page.locator("dialog[open]").count():
        await page.evaluate("document.activeElement.blur()")  # the walk by keyboard has left it somewhere
    path = Path(PICTURES) / f"{name}.png"
    if await page.locator("dialog[open]").count():
        await page.screenshot(path=path)
        return
    size = page.viewport_size or WIDE
    height = min(1150, await page.evaluate("Math.max(document.documentElement.scrollHeight, innerHeight)"))
    await page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": size["width"], "height": height})
