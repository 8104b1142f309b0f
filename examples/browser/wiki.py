"""An Otter Wiki as it is used with a mouse and a keyboard: its pages, its changelog, its Revert button.

Every change leaves a commit whose message ends with a mark of ours. The changelog is where a change is found again, and
where the wiki itself offers to revert it, a deletion and a revert too.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, Error, Locator, Page

from examples.browser.screen import NotOnScreen, Screen
from takeback.toolserver import InDoubt, OperationError

CHANGELOG = "/-/changelog"
PREFERENCES = "/-/admin"
RECURSIVE = "Recursive remove all attached files and folders"
DISCARD = re.compile("^Discard draft")
REVISION = re.compile(r"^[0-9a-f]{6,40}$")


class Change(TypedDict):
    """A commit of the wiki: its revision and its message, both as the changelog shows them."""

    revision: str
    message: str


class Wiki:
    """The wiki in a browser where somebody is signed in. It has one pair of hands: one thing is done at a time."""

    def __init__(self, browser: BrowserContext, patience_ms: int) -> None:
        self._browser = browser
        self.patience_ms = patience_ms
        self._hands = asyncio.Lock()
        self._tab: Page | None = None

    # --- what can be seen ---

    async def page(self, page: str) -> dict[str, str] | None:
        """A page's name and text, and nothing else of what is on the screen; None where there is no such page."""
        async with self._screen() as screen:
            await screen.open(f"/{page}/source")
            tab = screen.tab
            text = tab.locator("pre.code")
            missing = tab.get_by_role("heading", name="404 Page not found")
            if await screen.one(text.or_(missing), f"text of {page}") and await missing.count():
                return None
            crumbs = tab.get_by_role("navigation", name="Breadcrumbs").get_by_role("link")
            name = (await crumbs.all_inner_texts())[-1:]
            if [shown.strip().lower() for shown in name] != [page]:
                raise NotOnScreen(f"The screen of {page} shows {' '.join(name) or 'no name'}. Nothing was clicked.")
            return {"name": name[0].strip(), "text": await text.text_content() or ""}

    async def site(self) -> dict[str, str]:
        """The wiki's own name, as every screen shows it."""
        async with self._screen() as screen:
            await screen.open(PREFERENCES)
            field = await screen.one(screen.tab.locator("input[name=site_name]"), "field Site Name")
            return {"name": await field.input_value()}

    # --- what can be done ---

    async def write(self, page: str, text: str, message: str) -> Change:
        """Give a page this text; make the page where there is none. What it answers is the wiki's commit."""
        async with self._screen() as screen:
            await screen.open(f"/{page}?edit")
            tab = screen.tab
            save, draft = tab.get_by_title("Save", exact=True), tab.get_by_role("button", name=DISCARD)
            if await screen.one(save.or_(draft), "button Save") and await draft.count():
                # What an earlier call of ours typed and did not save. Nobody else sees it, or would miss it.
                await screen.click(draft, "button Discard draft")
            await screen.one(save, "button Save")
            await (await screen.one(tab.locator(".cm-content"), "editor", by_script=True)).click()
            await tab.keyboard.press("Control+A")
            await tab.keyboard.press("Delete")
            # The line end, which the wiki takes off again, keeps the editor from closing a lone bracket by itself.
            await tab.keyboard.insert_text(f"{text}\n")
            await screen.click(save, "button Save")
            dialog = tab.get_by_role("dialog").filter(has=tab.get_by_role("heading", name=re.compile("^Save ")))
            await screen.fill(dialog.get_by_role("textbox", name="Commit Message"), "field Commit Message", message)
            await screen.submit(dialog.get_by_role("button", name="Save", exact=True), "button Save")
            return await self._made(screen, message)

    async def delete(self, page: str, message: str) -> Change:
        """Delete a page alone; what is attached to it, or below it, stays."""
        async with self._screen() as screen:
            await screen.open(f"/{page}/delete")
            tab = screen.tab
            await screen.one(tab.get_by_role("heading", name=re.compile(rf"^Delete {page}\b", re.I)), "question Delete")
            await screen.click(tab.get_by_text(RECURSIVE, exact=True), "box Recursive")
            if await tab.get_by_role("checkbox", name=RECURSIVE).is_checked():
                raise NotOnScreen("The box Recursive cannot be cleared. Nothing was changed.")
            await screen.fill(tab.get_by_role("textbox", name="Commit message"), "field Commit message", message)
            await screen.submit(tab.get_by_role("button", name="Delete", exact=True), "button Delete")
            return await self._made(screen, message)

    async def rename(self, page: str, new_name: str, message: str) -> Change:
        """Give a page another name."""
        async with self._screen() as screen:
            await screen.open(f"/{page}/rename")
            tab = screen.tab
            await screen.fill(tab.get_by_role("textbox", name="New name"), "field New name", new_name)
            await screen.fill(tab.get_by_role("textbox", name="Commit message"), "field Commit message", message)
            await screen.submit(tab.get_by_role("button", name="Rename", exact=True), "button Rename")
            return await self._made(screen, message)

    async def revert(self, change: Change, message: str) -> Change | None:
        """Take *change* back by the button that the wiki offers beside it in its changelog.

        The revert is a change itself; None where the wiki says that it reverted and its changelog does not show it.
        """
        revision = change["revision"]
        async with self._screen() as screen:
            await screen.open(f"{CHANGELOG}/{revision}")
            tab = screen.tab
            row = await screen.one(_row(screen, change["message"]).filter(has_text=revision), f"change {revision}")
            await screen.click(row.locator("a", has=tab.locator("[title^='revert commit']")), f"revert of {revision}")
            await screen.one(tab.get_by_role("heading", name=f"Revert commit [{revision}]"), f"question of {revision}")
            await screen.fill(tab.get_by_role("textbox", name="Message"), "field Message", message)
            await screen.submit(tab.get_by_role("button", name="Revert", exact=True), "button Revert")
            return await self._change(screen, message)

    async def name_site(self, name: str) -> None:
        """Give the wiki itself another name. Of its preferences it keeps no earlier ones."""
        async with self._screen() as screen:
            await screen.open(PREFERENCES)
            tab = screen.tab
            await screen.fill(tab.locator("input[name=site_name]"), "field Site Name", name)
            await screen.submit(
                tab.get_by_role("button", name="Save Preferences", exact=True), "button Save Preferences"
            )
            await _refusal(screen)

    # --- how ---

    @asynccontextmanager
    async def _screen(self) -> AsyncIterator[Screen]:
        """The tab. What the browser cannot do is a refusal, unless the click that changes something was made."""
        async with self._hands:
            screen: Screen | None = None
            try:
                if self._tab is None or self._tab.is_closed():
                    self._tab = await self._browser.new_page()
                screen = Screen(self._tab, self.patience_ms)
                yield screen
            except Error as error:
                told = error.message.splitlines()[0]
                if screen is not None and screen.acted:
                    raise InDoubt(f"it was clicked, and then the browser said: {told}") from error
                raise NotOnScreen(f"The browser says: {told} Nothing was changed.") from error
            finally:
                # What was typed and not saved would stand in the way of the next page.
                if sys.exception() is not None and self._tab is not None:
                    await self._tab.close()

    async def _made(self, screen: Screen, message: str) -> Change:
        change = await self._change(screen, message)
        if change is None:
            raise InDoubt(f"the wiki took it, and its changelog does not show a change {message!r}")
        return change

    async def _change(self, screen: Screen, message: str) -> Change | None:
        """The commit that the last click made. Raises `OperationError` where the wiki says that it made none."""
        await _refusal(screen)
        try:
            if urlsplit(screen.tab.url).path != CHANGELOG:
                await screen.open(CHANGELOG)
            row = _row(screen, message)
            if await row.count() != 1:
                return None
            link = await screen.one(row.get_by_role("link", name=REVISION), "revision in the changelog")
        except NotOnScreen:
            return None
        return {"revision": await link.inner_text(), "message": message}


def _row(screen: Screen, message: str) -> Locator:
    return screen.tab.get_by_role("row").filter(has_text=message)


async def _refusal(screen: Screen) -> None:
    told = await screen.says(screen.tab.locator(".sticky-alerts .alert"))
    if told.startswith(("Error", "Nothing changed", "Please")):
        raise OperationError(f"The wiki says: {told} Nothing was changed.")
