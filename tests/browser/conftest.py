"""One running Takeback with both examples, and one Chromium, for everything that is looked at in a browser."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from examples.demo.stage import Stage
from takeback.example import Installation
from tests.browser.people import BROWSERS, PATIENCE_MS, Console, Theatre
from tests.servers import Databases
from tests.story.conftest import running_installation

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed: make setup")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here shares one event loop, so that the browser can be shared."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Where Chromium is; without one these tests say what is missing, and skip."""
    found = os.environ.get("TAKEBACK_TEST_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("there is no Chromium here: apt-get install chromium, or name one in TAKEBACK_TEST_CHROMIUM")
    return found


@pytest.fixture(scope="session")
def installation(
    chromium_path: str, migrated_databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """The stack, running until the last page was looked at."""
    with running_installation(migrated_databases, tmp_path_factory.mktemp("browser")) as installation:
        yield installation


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium_path: str) -> AsyncIterator["playwright.Browser"]:
    """Chromium, without a screen and without calling anybody."""
    playwright.expect.set_options(timeout=PATIENCE_MS)
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=chromium_path,
            args=[
                "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                "--disable-component-update", "--disable-sync",
                # One process draws all windows: each more takes as long to start as a test takes.
                "--process-per-site", "--renderer-process-limit=1", "--disable-site-isolation-trials",
            ],
        )  # fmt: skip
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def theatre(installation: Installation) -> AsyncIterator[Theatre]:
    """Both stories, played as far as the pages need them: once for all tests."""
    async with Stage(installation) as stage:
        yield Theatre(stage, installation)


@pytest_asyncio.fixture(loop_scope="session")
async def console(browser: "playwright.Browser", installation: Installation) -> AsyncIterator[Console]:
    """Windows of the browser, each with somebody signed in; closed at the test's end."""
    console = Console(browser, installation)
    yield console
    await console.close()
