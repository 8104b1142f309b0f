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
