"""The second story in the browser: from the review queue to the receipts, with a teammate's edit in between."""

from playwright.async_api import expect

from examples.deal.example import OWNER
from tests.browser.people import Console, Theatre


async def test_a_deal_is_taken_back_from_its_review_to_its_receipts_beside_a_teammates_edit(
    console: Console, theatre: Theatre
) -> None:
    """E2, U2, G4, G5: preview, queue, review, conflict field by field, a step left out, receipts, the CRM itself."""
    sale = await theatre.sale(81, agreed=False)
    cast = sale.cast
    owner = await console.window(OWNER)
    await console.open(owner, f"/console/campaigns/{sale.campaign}/approvals")
    await owner.locator(f'a[href="/console/approvals/{sale.entries["mail"]["approval"]}"]').click()
    await expect(owner.get_by_text(cast.address, exact=True)).to_be_visible()
    await owner.get_by_role("button", name="Let it go on").click()
    await expect(owner.get_by_text("Your decision is in the journal.")).to_be_visible()
    sale.entries["mail"] = await sale.agent.caller.settled(sale.entries["mail"]["id"])
    await sale.agent.end()

    page = await console.window(cast.seller)
    await console.open(page, f"/console/campaigns/{sale.campaign}/reviews")
    deadlines = await page.locator("#queue time[data-until]").evaluate_all("all => all.map(one => one.dataset.until)")
    assert deadlines == sorted(deadlines)
    await page.locator(f'#queue a[href="/console/runs/{sale.agent.run}/review"]').click()
    await expect(page.locator("#review")).to_contain_text("its tool says that it cannot be undone")
    await page.get_by_role("button", name="I have seen this").click()
    await expect(page.get_by_text("Noted: you have seen")).to_be_visible()
    await page.get_by_role("button", name="Take it back…").click()

    await expect(page.get_by_text("This is a proposal. Nothing has been taken back yet.")).to_be_visible()
    won, refund = sale.entries["stage"]["id"], sale.entries["refund"]["id"]
    row = page.locator(f"#step-{won} table.conflict tbody tr", has_text="nextStep")
    await expect(row.locator("td")).to_have_text(["(empty)", "kick-off", cast.next_step])
    for section in ("Cannot be taken back", "Has read it since", "Will also happen"):
        await expect(page.get_by_role("heading", name=section)).to_be_visible()
    await page.locator(f"#step-{won}").get_by_label("Take back only stage").check()
    await page.locator(f"#step-{refund}").get_by_label("Leave it out").check()
    await page.get_by_label("Reason").fill("nobody signed")
    await page.get_by_label("made up").check()
    await page.get_by_role("button", name="Take it back", exact=True).click()

    await expect(page.get_by_role("heading", name="Receipts")).to_be_visible()
    outcomes = {
        name: await page.locator("#record li", has_text=f"{operation} ").first.get_attribute("data-outcome")
        for name, operation in (("stage", "update deal"), ("meeting", "create meeting"), ("refund", "refund"))
    }
    assert outcomes == {"stage": "reverted", "meeting": "reverted", "refund": "left_out"}
    await expect(page.locator("#record")).to_contain_text("“nobody signed” (made up)")
    deal = await sale.company.deal(cast.deal)
    assert (deal["stage"], deal["nextStep"]) == ("Proposal", cast.next_step)
    assert await sale.company.meetings(cast.deal) == []

    await page.get_by_role("link", name="Questions").click()
    await expect(page.get_by_role("heading", name="Why was it taken back?")).to_be_visible()
    await expect(page.locator("dl.bars").first).to_contain_text("made up")
    assert console.errors == []


async def test_a_plan_that_the_world_moved_past_leads_to_a_fresh_one(console: Console, theatre: Theatre) -> None:
    """G6: nothing is done, the page says so and shows what it means now."""
    sale = await theatre.sale(82)
    page = await console.window(sale.cast.seller)
    plan = await sale.seller.plan(sale.campaign, entries=[sale.entries["refund"]["id"], sale.entries["stage"]["id"]])
    await console.open(page, f"/console/plans/{plan['id']}")
    await sale.company.edit_deal(sale.cast.deal, sale.cast.teammate, next_step="ask again in spring")
    await page.get_by_label("Take back only stage").check()
    await page.get_by_role("button", name="Take it back", exact=True).click()
    await expect(page.get_by_text("nothing was done. This is what it means now.")).to_be_visible()
    assert plan["id"] not in page.url
    await expect(page.locator("table.conflict")).to_contain_text("ask again in spring")
    assert (await sale.company.deal(sale.cast.deal))["stage"] == "Won"
    await page.get_by_role("button", name="Reject the plan").click()
    await expect(page.get_by_text("The plan was rejected. Nothing was taken back.")).to_be_visible()
    await page.get_by_role("button", name="Ask what it means now").click()
    await expect(page.get_by_text("This is a proposal.")).to_be_visible()
