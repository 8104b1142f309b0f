"""Signing in where an organisation's accounts are: a real code flow against a small real issuer."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from examples.hosting import serving
from tests.browser.issuer import AUDIENCE, CLIENT, SECRET, Issuer
from tests.processes import TakebackProcess
from tests.servers import Databases
from tests.waiting import WAIT_SECONDS


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def issuer() -> AsyncIterator[Issuer]:
    """The issuer, served."""
    issuer = Issuer("olga")
    async with serving(issuer.application()) as [url]:
        issuer.url = url
        yield issuer


@pytest.fixture(scope="session")
def database(migrated_databases: Databases) -> Iterator[str]:
    """A database of its own, already migrated."""
    url = migrated_databases.create()
    yield url
    migrated_databases.drop(url)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def deployed(issuer: Issuer, database: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A stack whose people have their accounts at the issuer."""
    folder: Path = tmp_path_factory.mktemp("oidc")
    environ = {
        "TAKEBACK_POSTGRES_URL": database,
        "TAKEBACK_OIDC_ISSUER": issuer.url,
        "TAKEBACK_OIDC_AUDIENCE": AUDIENCE,
        "TAKEBACK_OIDC_JWKS_URL": f"{issuer.url}/keys",
        "TAKEBACK_OIDC_PERSON": "sid",
        "TAKEBACK_OIDC_CLIENT_ID": CLIENT,
        "TAKEBACK_OIDC_CLIENT_SECRET": SECRET,
    }
    arguments = ("serve", "--data", str(folder / "data"), "--port", "0", "--no-examples")
    async with TakebackProcess(*arguments, environ=environ) as process:
        yield process.url


async def test_a_person_signs_in_at_the_issuer_and_finds_their_campaigns(
    browser: Browser, issuer: Issuer, deployed: str
) -> None:
    """U1: the authorization code flow with PKCE; the API knows the person by the issuer's token."""
    headers = {"Authorization": f"Bearer {issuer.token(AUDIENCE)}"}
    async with httpx.AsyncClient(base_url=deployed, headers=headers, timeout=WAIT_SECONDS) as olga:
        campaign = (await olga.post("/v1/campaigns", json={"name": "Olga's"})).json()["id"]
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{deployed}/console/campaigns/{campaign}")
    await page.get_by_role("link", name="Go on to sign in").click()
    await page.wait_for_url(f"{deployed}/console/campaigns/{campaign}")
    await expect(page.get_by_role("heading", name="Olga's")).to_be_visible()
    await expect(page.locator(".who")).to_have_text("olga")
    await context.close()


async def test_an_answer_of_another_sign_in_signs_nobody_in(issuer: Issuer, deployed: str) -> None:
    """U1: state, nonce and verifier belong to one browser and one attempt."""
    async with httpx.AsyncClient(base_url=deployed, timeout=WAIT_SECONDS) as visitor:
        begun = await visitor.get("/console/sign-in/issuer")
        async with httpx.AsyncClient() as browser:
            back = (await browser.get(begun.headers["location"])).headers["location"]
        async with httpx.AsyncClient() as other:
            assert (await other.get(back)).status_code == 403
        forged = back.replace("state=", "state=x")
        assert (await visitor.get(forged)).status_code == 403
        issuer.nonce = "of another attempt"
        try:
            answer = await visitor.get(back)
        finally:
            issuer.nonce = None
        assert answer.status_code == 403
        assert "takeback_session" not in answer.headers.get("set-cookie", "")


async def test_an_issuer_whose_tokens_are_not_for_this_api_signs_nobody_in(issuer: Issuer, deployed: str) -> None:
    """U1: an opaque access token and an id token for the console alone are no word to the API, and the page says why."""
    issuer.opaque = True
    try:
        async with httpx.AsyncClient(base_url=deployed, timeout=WAIT_SECONDS) as visitor:
            begun = await visitor.get("/console/sign-in/issuer")
            async with httpx.AsyncClient() as browser:
                back = (await browser.get(begun.headers["location"])).headers["location"]
            answer = await visitor.get(back)
    finally:
        issuer.opaque = False
    assert answer.status_code == 403
    assert "TAKEBACK_OIDC_AUDIENCE" in answer.text
