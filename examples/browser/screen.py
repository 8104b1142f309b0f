"""One tab of the browser: what is looked for is there exactly once, or nothing is clicked."""

from __future__ import annotations

from playwright.async_api import Error, Locator, Page

from takeback.toolserver import OperationError

LOAD_MS = 12_000
"""How long a page may take to come, and its scripts to make what they make."""


class NotOnScreen(OperationError):
    """The screen is not as it was when this was written. Nothing was clicked that changes anything."""


class Screen:
    """A tab while one thing is done in it. *patience_ms*: how long something may take to appear on its page.

    `acted` becomes true with the one click that changes something: from then on nothing that goes wrong is a refusal.
    """

    def __init__(self, tab: Page, patience_ms: int) -> None:
        self.tab = tab
        self.acted = False
        self._patience_ms = patience_ms

    async def open(self, path: str) -> None:
        """Go to *path* of the application. Raises `NotOnScreen` where it cannot be reached."""
        try:
            await self.tab.goto(path, timeout=LOAD_MS, wait_until="domcontentloaded")
        except Error as error:
            first = error.message.splitlines()[0]
            raise NotOnScreen(f"{path} cannot be opened ({first}). Nothing was clicked.") from error

    async def one(self, looked_for: Locator, what: str, *, by_script: bool = False) -> Locator:
        """The one visible element that *looked_for* finds; *what* is its name in words; *by_script*: a script makes it.

        Raises `NotOnScreen` where there is none, and where there are several: which is meant is not for us to guess.
        """
        visible = looked_for.filter(visible=True)
        try:
            await visible.first.wait_for(timeout=LOAD_MS if by_script else self._patience_ms)
            found = await visible.count()
        except Error:
            found = 0
        if found != 1:
            many = "no" if found == 0 else f"{found} times the"
            raise NotOnScreen(f"There is {many} {what} on {self._here}: its layout has changed. Nothing was clicked.")
        return visible

    async def click(self, looked_for: Locator, what: str) -> None:
        """Click on what changes nothing: a link, a menu, a field. Raises `NotOnScreen`."""
        await (await self.one(looked_for, what)).click(timeout=self._patience_ms)

    async def fill(self, looked_for: Locator, what: str, text: str) -> None:
        """Type *text* into a field. Raises `NotOnScreen`."""
        await (await self.one(looked_for, what)).fill(text, timeout=self._patience_ms)

    async def submit(self, looked_for: Locator, what: str) -> None:
        """The one click that changes something, and the page that answers it. Raises `NotOnScreen`."""
        button = await self.one(looked_for, what)
        await button.click(trial=True, timeout=self._patience_ms)
        self.acted = True
        async with self.tab.expect_navigation(timeout=LOAD_MS, wait_until="domcontentloaded"):
            await button.click(timeout=self._patience_ms)

    async def says(self, looked_for: Locator) -> str:
        """What the application tells of itself, such as an alert; empty where it tells nothing.

        Whether it is shown yet is no matter, and nothing is waited for: the page's own script makes it as the page comes.
        """
        told = await looked_for.all_text_contents()
        return " ".join(text.strip("\N{MULTIPLICATION SIGN} \n") for text in told)

    @property
    def _here(self) -> str:
        return self.tab.url.split("?")[0].split("//")[-1].partition("/")[2] or "the start page"
