"""People in front of the console, and what they find there."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Browser, BrowserContext, Page

from examples.agents.narrator import Narrator
from examples.agents.sales import CapacityAgent, ForecastJob, SalesAgent
from examples.client import Answer, Caller
from examples.deal.example import CAPACITY, FORECAST, SALES
from examples.deal.example import OWNER as DANA
from examples.demo.cast import DealCast, GameCast, deal_cast, game_cast
from examples.demo.stage import Stage
from examples.opening import read_notes
from examples.table.example import AGENT
from takeback.example import Installation
from tests.waiting import WAIT_SECONDS

PATIENCE_MS = 1000 * WAIT_SECONDS
"""How long a page may take to show what it should: no test is about that."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = {"width": 1100, "height": 780}, {"width": 360, "height": 720}


class Console:
    """Windows of one browser. *errors* collects what pages complained of: there should be nothing."""

    def __init__(self, browser: Browser, installation: Installation) -> None:
        self._browser = browser
        self._installation = installation
        self.url = installation.urls.http
        self._contexts: list[BrowserContext] = []
        self.errors: list[str] = []

    async def window(self, sub: str | None, **options: Any) -> Page:
        """A window with *sub* signed in by the link that the terminal prints; None: with nobody."""
        context = await self._browser.new_context(**{"viewport": WIDE, **options})
        context.set_default_timeout(PATIENCE_MS)
        self._contexts.append(context)
        page = await context.new_page()
        page.on("pageerror", lambda error: self.errors.append(f"{page.url}: {error}"))
        page.on("console", lambda said: self._said(page, said.type, said.text))
        if sub is not None:
            await page.goto(f"{self.url}/console/sign-in#token={self._installation.token(sub)}")
            await page.wait_for_url(f"{self.url}/")
        return page

    async def open(self, page: Page, path: str) -> None:
        """Goes to *path* of the console."""
        answer = await page.goto(self.url + path)
        assert answer is not None
        assert answer.ok, f"{path}: {answer.status}"

    async def close(self) -> None:
        """Closes all windows."""
        for context in self._contexts:
            await context.close()

    def _said(self, page: Page, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.errors.append(f"{page.url}: {text}")


class Theatre:
    """Both stories on the running stack."""

    def __init__(self, stage: Stage, installation: Installation) -> None:
        self.stage = stage
        self.installation = installation

    def screen(self, player: str, adventure: str) -> str:
        """The address of a player's screen."""
        return f"{read_notes(self.installation.folder.path)['table']}/{player}/{adventure}"

    async def table(self, seed: int) -> tuple[GameCast, Narrator]:
        """A table that is set, and a narrator who is about to play the rogue's turn."""
        cast = game_cast(seed)
        await (await self.stage.game()).set_up(cast.scene)
        narrator = await Narrator.begin(
            await self.stage.seat(AGENT, "agent"), self.stage.campaign("game"), str(cast.rogue.player)
        )
        return cast, narrator

    async def sale(self, seed: int, *, agreed: bool = True) -> Sale:
        """A deal that the agent has won by mistake, edited by a teammate since, and read by others."""
        sale = await Sale.begin(self.stage, deal_cast(seed))
        await sale.work(agreed=agreed)
        return sale


class Sale:
    """The second story up to the moment when somebody looks."""

    def __init__(self, stage: Stage, cast: DealCast, agent: SalesAgent, seller: Caller, company: Any) -> None:
        self._stage = stage
        self.campaign = stage.campaign("deal")
        self.cast = cast
        self.agent = agent
        self.seller = seller
        self.company = company
        self.entries: dict[str, Answer] = {}

    @classmethod
    async def begin(cls, stage: Stage, cast: DealCast) -> Sale:
        """The deal and the order are in the applications; the agent's run is open."""
        company = await stage.company()
        await company.enter_deal(
            cast.deal, customer=cast.customer, stage="Proposal", amount=cast.amount, currency=cast.currency
        )
        await company.enter_order(cast.order, cast.customer, cast.paid, cast.currency)
        agent = await SalesAgent.begin(await stage.seat(SALES, "agent"), stage.campaign("deal"), cast.seller)
        return cls(stage, cast, agent, await stage.seat(cast.seller), company)

    async def work(self, *, agreed: bool) -> None:
        """Stage, meeting, mail (asked), refund; then others read, and the teammate edits."""
        cast, agent = self.cast, self.agent
        self.entries["stage"] = await agent.win(cast.deal, "kick-off")
        self.entries["meeting"] = await agent.book_kickoff(cast.deal, cast.customer, [cast.address])
        self.entries["mail"] = asked = await agent.welcome(cast.address, cast.customer)
        if agreed:
            await (await self._stage.seat(DANA)).decide_approval(asked["approval"], "approve")
            self.entries["mail"] = await agent.caller.settled(asked["id"])
        self.entries["refund"] = await agent.pay_back(cast.order, cast.refund, cast.currency)
        forecast = await ForecastJob.begin(await self._stage.seat(FORECAST, "agent"), self.campaign, cast.seller)
        await forecast.weigh(cast.deal)
        capacity = await CapacityAgent.begin(await self._stage.seat(CAPACITY, "agent"), self.campaign, cast.seller)
        await capacity.book(cast.deal, cast.days)
        await self.company.edit_deal(cast.deal, cast.teammate, next_step=cast.next_step)
