"""What keeps the console to itself: forms of other sites, hostile names, borrowed cookies."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import expect

from takeback.example import Installation
from tests.browser.people import Console, Theatre
from tests.waiting import WAIT_SECONDS

HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>{{ 7*7 }}'
SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(installation: Installation) -> AsyncIterator[httpx.AsyncClient]:
    """A browser's requests without a browser."""
    async with httpx.AsyncClient(base_url=installation.urls.http, timeout=WAIT_SECONDS) as client:
        yield client


async def signed_in(visitor: httpx.AsyncClient, installation: Installation, sub: str) -> str:
    """Signs *sub* in; answers what their forms carry."""
    sent = await visitor.post("/console/sign-in/token", data={"token": installation.token(sub)}, headers=SAME)
    assert sent.status_code == 303
    page = (await visitor.get("/")).text
    found = re.search(r'data-csrf="([0-9a-f]+)"', page)
    assert found is not None
    return found.group(1)


async def test_no_page_has_anything_inline_and_none_may_be_framed_or_kept(
    visitor: httpx.AsyncClient, installation: Installation
) -> None:
    """U2: CSP without inline script or style."""
    await signed_in(visitor, installation, "dana")
    for path in ("/", "/console/sign-in", "/console/runs/run_x"):
        answer = await visitor.get(path)
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", answer.text)


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites_and_opens_nothing_after_signing_out(
    visitor: httpx.AsyncClient, installation: Installation
) -> None:
    """U1: the session is the server's to end."""
    sent = await visitor.post("/console/sign-in/token", data={"token": installation.token("dana")}, headers=SAME)
    cookie = sent.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    csrf = await signed_in(visitor, installation, "dana")
    borrowed = str(visitor.cookies["takeback_session"])
    assert installation.token("dana") not in borrowed
    await visitor.post("/console/sign-out", data={"csrf": csrf}, headers=SAME)
    again = await visitor.get("/", headers={"Cookie": f"takeback_session={borrowed}"})
    assert again.status_code == 303
    assert again.headers["location"].startswith("/console/sign-in")


@pytest.mark.parametrize(
    ("headers", "with_token"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, True),
        ({"Origin": "https://evil.example"}, True),
        ({}, True),
        (SAME, False),
    ],
)
async def test_a_form_of_another_site_does_nothing(
    visitor: httpx.AsyncClient, installation: Installation, theatre: Theatre, headers: dict[str, str], with_token: bool
) -> None:
    """U1: origin and the session's own token, both."""
    csrf = await signed_in(visitor, installation, "gm")
    _, narrator = await theatre.table(51)
    data = {"csrf": csrf} if with_token else {}
    answer = await visitor.post(f"/console/runs/{narrator.run}/close", data=data, headers=headers)
    assert answer.status_code == 403
    owner = await theatre.stage.seat("gm")
    assert (await owner.get(f"/v1/runs/{narrator.run}"))["status"] == "open"
    rest = await visitor.post(f"/console/runs/{narrator.run}/close", data={"csrf": csrf}, headers=SAME)
    assert rest.status_code == 303
    assert (await owner.get(f"/v1/runs/{narrator.run}"))["status"] == "closed"


async def test_a_token_that_does_not_count_or_is_no_persons_signs_nobody_in(
    visitor: httpx.AsyncClient, installation: Installation
) -> None:
    """P10: the console is for people."""
    for token in ("nonsense", installation.token("narrator", "agent"), installation.token("job", "service")):
        answer = await visitor.post("/console/sign-in/token", data={"token": token}, headers=SAME)
        assert answer.status_code == 422
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "back",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "/console/..//evil.example", "javascript:alert(1)"],
)
async def test_no_address_leads_away_from_the_console(
    visitor: httpx.AsyncClient, installation: Installation, back: str
) -> None:
    """U1: after the sign-in one is where one was, or on the first page."""
    sent = {"token": installation.token("dana"), "back": back}
    answer = await visitor.post("/console/sign-in/token", data=sent, headers=SAME)
    assert answer.headers["location"] == "/"


async def test_a_stranger_sees_of_a_campaign_what_does_not_exist(
    visitor: httpx.AsyncClient, installation: Installation, theatre: Theatre
) -> None:
    """G7: the pages know nothing that the API does not tell."""
    await signed_in(visitor, installation, "stranger")
    campaign = theatre.stage.campaign("deal")
    seen = [await visitor.get(f"/console/campaigns/{one}") for one in (campaign, "cmp_does_not_exist")]
    assert [answer.status_code for answer in seen] == [404, 404]
    texts = [re.sub(r"cmp_\w+|data-csrf=\S+|value=\S+", "", answer.text) for answer in seen]
    assert texts[0] == texts[1]


async def test_a_hostile_name_is_shown_as_what_it_is(console: Console, theatre: Theatre) -> None:
    """U2: names, models, arguments, reasons and members are text wherever they appear."""
    dana = await theatre.stage.seat("dana")
    opened = await dana.post("/v1/campaigns", {"name": HOSTILE, "members": [{"sub": HOSTILE, "role": "member"}]})
    campaign = opened["id"]
    await dana.put(f"/v1/campaigns/{campaign}/agents/agent-1", {"memory": "no"})
    run = await dana.post(f"/v1/campaigns/{campaign}/runs", {"agent": HOSTILE, "model": HOSTILE, "principal": "dana"})
    page = await console.window("dana")
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    for path in (
        "/", f"/console/campaigns/{campaign}", f"/console/runs/{run['id']}", f"/console/campaigns/{campaign}/questions",
        f"/console/campaigns/{campaign}/reviews", "/?told=<script>alert(1)</script>",
    ):  # fmt: skip
        await console.open(page, path)
        assert await page.locator("img").count() == 0
        assert await page.locator("script:not([src])").count() == 0
    await console.open(page, f"/console/campaigns/{campaign}")
    await expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    assert asked == []
    assert console.errors == []
