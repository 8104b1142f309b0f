"""What waits for a person, as the person finds it."""

from playwright.async_api import expect

from examples.deal.example import OWNER as DANA
from tests.browser.people import Console, Theatre


async def test_the_list_says_of_each_call_why_it_asks(theatre: Theatre, console: Console) -> None:
    """U2, P6: whoever triages need not open each one."""
    sale = await theatre.sale(73, agreed=False)
    approval = sale.entries["mail"]["approval"]
    dana = await theatre.stage.seat(DANA)
    why = (await dana.get(f"/v1/approvals/{approval}"))["why"]
    page = await console.window(DANA)
    await console.open(page, f"/console/campaigns/{sale.campaign}/approvals")
    row = page.locator(".row", has=page.locator(f'a[href="/console/approvals/{approval}"]'))
    for reason in why:
        await expect(row).to_contain_text(reason, ignore_case=True)
    assert why


async def test_a_read_is_told_as_one(theatre: Theatre, console: Console) -> None:
    """U2, J12: what it has read, and nothing of a change that it never was."""
    sale = await theatre.sale(74, agreed=False)
    dana = await theatre.stage.seat(DANA)
    runs = (await dana.get(f"/v1/campaigns/{sale.campaign}/runs"))["items"]
    entries = [entry for run in runs for entry in (await dana.get(f"/v1/runs/{run['id']}/entries"))["items"]]
    read = next(entry for entry in entries if entry["kind"] == "read")
    (used,) = read["effect"]["uses"]
    page = await console.window(DANA)
    await console.open(page, f"/console/entries/{read['id']}")
    await expect(page.locator("main")).to_contain_text("What it read")
    await expect(page.locator(".resource")).to_have_text(used)
    for other in ("What it changed", "cannot be taken back", "unnamed record"):
        await expect(page.locator("main")).not_to_contain_text(other)
    await console.open(page, f"/console/runs/{read['run']}")
    await expect(page.locator(f"#{read['id']} .resource")).to_have_text(used)
