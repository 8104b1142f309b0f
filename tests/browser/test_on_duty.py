"""A deadline beside the people who are there before it, on every page that says one."""

from datetime import UTC, datetime, timedelta

from playwright.async_api import expect

from examples.deal.example import OWNER as DANA
from takeback.calendars import DAYS
from tests.browser.people import Console, Theatre


async def test_every_deadline_says_who_is_back_only_after_it_and_who_is_there(
    theatre: Theatre, console: Console
) -> None:
    """U2, P3: "closes in 23 h, before the seller is back on …; dana is on duty"; seven days are long enough."""
    sale = await theatre.sale(71)
    back = datetime.now(UTC) + timedelta(days=3)
    dana = await theatre.stage.seat(DANA)
    for sub, days in ((sale.cast.seller, [DAYS[back.weekday()]]), (DANA, DAYS)):
        calendar = {"zone": "UTC", "weekly": {day: [["00:00", "24:00"]] for day in days}}
        await dana.put(f"/v1/campaigns/{sale.campaign}/calendars/{sub}", calendar)
    refund = f"before {sale.cast.seller} is back on {back:%A}; you are on duty"
    stage = f"after {sale.cast.seller} is back on {back:%A}"
    plan = await dana.plan(sale.campaign, entries=[sale.entries["refund"]["id"]])
    campaign, run = f"/console/campaigns/{sale.campaign}", f"/console/runs/{sale.agent.run}"
    page = await console.window(DANA)
    await console.open(page, f"{campaign}/reviews")
    await expect(page.locator(f"[data-run={sale.agent.run}]")).to_contain_text(refund)
    await console.open(page, campaign)
    await expect(page.locator(".row", has=page.locator(f'a[href="{run}"]'))).to_contain_text(refund)
    for path in (run, f"{run}/review"):
        await console.open(page, path)
        await expect(page.locator("main")).to_contain_text(refund)
        await expect(page.locator("main")).to_contain_text(stage)
    for path in (f"/console/entries/{sale.entries['refund']['id']}", f"/console/plans/{plan['id']}"):
        await console.open(page, path)
        await expect(page.locator("main")).to_contain_text(refund)
    seller = await console.window(sale.cast.seller)
    await console.open(seller, run)
    await seller.locator(".turn.latest").get_by_role("button", name="Undo").click()
    await expect(seller.get_by_role("dialog")).to_contain_text(f"before you are back on {back:%A}")
    assert console.errors == []
