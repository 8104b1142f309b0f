"""The browser: Debian's Chromium, driven by Playwright, signed in to the wiki."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import async_playwright

from examples.browser.wiki import Wiki

_QUIET = [
    *("--no-sandbox", "--headless", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


class NoChromium(Exception):
    """There is no Chromium here: `apt-get install chromium`."""


def chromium() -> str:
    """Where Chromium is. Raises `NoChromium`."""
    found = shutil.which("chromium")
    if found is None:
        raise NoChromium(NoChromium.__doc__)
    return found


@asynccontextmanager
async def browsing(url: str, name: str, email: str, patience_ms: int = 5_000) -> AsyncIterator[Wiki]:
    """The wiki at *url* in a new browser profile, used by *name* until the context ends.

    The wiki trusts its sign-on proxy: who speaks is in the headers of each request. *patience_ms*: how long something may
    take to appear on a page that has come. Raises `NoChromium`.
    """
    signed_in = {
        "x-otterwiki-name": name,
        "x-otterwiki-email": email,
        "x-otterwiki-permissions": "READ,WRITE,ADMIN",
    }
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=_QUIET)
        try:
            context = await browser.new_context(base_url=url, extra_http_headers=signed_in)
            yield Wiki(context, patience_ms)
        finally:
            await browser.close()
