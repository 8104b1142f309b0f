"""E2: one run across several systems, taken back as far as it can be; and the stories S3, S9 and S14 beside it."""

import pytest

from examples.agents.sales import CapacityAgent, ForecastJob, SalesAgent, deal_resource
from examples.client import Answer, Caller, Refused
from examples.deal.company import Company
from examples.deal.example import CAPACITY, FORECAST, OWNER, SALES
from examples.demo.cast import DealCast, deal_cast
from examples.demo.stage import Stage

STAGE, MEETING, MAIL, REFUND = "update_deal", "create_meeting", "send_mail", "refund"


class Sale:
    """A deal that the agent has won by mistake: stage, meeting, e-mail (agreed to by the owner), refund."""

    def __init__(self, stage: Stage, cast: DealCast, company: Company, seller: Caller, agent: SalesAgent) -> None:
        self.stage = stage
        self.campaign = stage.campaign("deal")
        self.cast = cast
        self.company = company
        self.seller = seller
        self.agent = agent
        self.entries: dict[str, Answer] = {}

    async def work(self) -> None:
        cast, agent = self.cast, self.agent
        self.entries[STAGE] = await agent.win(cast.deal, "kick-off")
        self.entries[MEETING] = await agent.book_kickoff(cast.deal, cast.customer, [cast.address])
        asked = await agent.welcome(cast.address, cast.customer)
        assert asked["status"] == "awaiting_approval"
        owner = await self.stage.seat(OWNER)
        await owner.decide_approval(asked["approval"], "approve")
        self.entries[MAIL] = await agent.caller.settled(asked["id"])
        self.entries[REFUND] = await agent.pay_back(cast.order, cast.refund, cast.currency)

    def id_of(self, operation: str) -> str:
        return str(self.entries[operation]["id"])

    async def plan(self) -> Answer:
        return await self.seller.plan(self.campaign, run=self.agent.run)


@pytest.fixture
async def sale(stage: Stage, request: pytest.FixtureRequest) -> Sale:
    cast = deal_cast(sum(map(ord, request.node.name)))
    company, campaign = await stage.company(), stage.campaign("deal")
    await company.enter_deal(
        cast.deal, customer=cast.customer, stage="Proposal", amount=cast.amount, currency=cast.currency
    )
    await company.enter_order(cast.order, cast.customer, cast.paid, cast.currency)
    agent = await SalesAgent.begin(await stage.seat(SALES, "agent"), campaign, cast.seller)
    return Sale(stage, cast, company, await stage.seat(cast.seller), agent)


async def test_a_run_across_four_systems_is_taken_back_as_far_as_it_can_be(sale: Sale) -> None:
    """E2, G4, G10: steps, what is not reversible, side effects; receipts with the versions; the systems themselves."""
    await sale.work()
    assert sale.entries[MAIL]["status"] == "committed"
    plan = await sale.plan()
    assert {step["operation"] for step in plan["steps"]} == {STAGE, MEETING, REFUND}
    assert [(n["entry"], n["reason"]) for n in plan["notReversible"]] == [(sale.id_of(MAIL), "declared")]
    assert "The attendees get a cancellation notice." in {effect["text"] for effect in plan["sideEffects"]}
    done = await sale.seller.decide_plan(plan, reason="nobody signed", category="hallucinated")
    record = await sale.seller.record(done["id"])
    assert {receipt["outcome"] for receipt in record["receipts"]} == {"reverted"}
    assert all(receipt["versionBefore"] == receipt["expectedVersion"] for receipt in record["receipts"])
    assert (await sale.company.deal(sale.cast.deal))["stage"] == "Proposal"
    assert await sale.company.meetings(sale.cast.deal) == []
    assert (await sale.company.order(sale.cast.order))["refunded"] == "0.00"
    letters = await sale.company.delivered(sale.cast.address, f"Cancelled: Kick-off with {sale.cast.customer}")
    assert f"Welcome, {sale.cast.customer}" in letters
    receipt = next(r for r in record["receipts"] if r["entry"] == sale.id_of(MEETING))
    assert any(sale.cast.address in text for text in receipt["sideEffects"])


async def test_a_teammates_edit_is_shown_and_never_overwritten(sale: Sale) -> None:
    """G4, G8: the conflict stands in the plan field by field; approved as it is, nothing of it is overwritten."""
    await sale.work()
    await sale.company.edit_deal(sale.cast.deal, sale.cast.teammate, next_step=sale.cast.next_step)
    plan = await sale.plan()
    step = next(step for step in plan["steps"] if step["operation"] == STAGE)
    conflicting = {field["field"]: field for field in step["conflict"]["fields"]}
    assert conflicting["nextStep"] == {
        "field": "nextStep",
        "was": "",
        "wrote": "kick-off",
        "now": sale.cast.next_step,
    }
    done = await sale.seller.decide_plan(plan, reason="try")
    record = await sale.seller.record(done["id"])
    outcomes = {receipt["entry"]: receipt["outcome"] for receipt in record["receipts"]}
    assert outcomes[sale.id_of(STAGE)] == "conflict"
    assert outcomes[sale.id_of(REFUND)] == "reverted"
    deal = await sale.company.deal(sale.cast.deal)
    assert (deal["stage"], deal["nextStep"]) == ("Won", sale.cast.next_step)


async def test_one_field_is_taken_back_and_a_step_left_out(sale: Sale) -> None:
    """G5: the stage goes back, the teammate's next step stays, the refund was left out."""
    await sale.work()
    await sale.company.edit_deal(sale.cast.deal, sale.cast.teammate, next_step=sale.cast.next_step)
    plan = await sale.plan()
    done = await sale.seller.decide_plan(
        plan, fields={sale.id_of(STAGE): ["stage"]}, leaveOut=[sale.id_of(REFUND)], reason="nobody signed"
    )
    record = await sale.seller.record(done["id"])
    outcomes = {receipt["entry"]: receipt for receipt in record["receipts"]}
    assert outcomes[sale.id_of(STAGE)]["outcome"] == "reverted"
    assert outcomes[sale.id_of(STAGE)]["fields"] == ["stage"]
    assert outcomes[sale.id_of(REFUND)]["outcome"] == "left_out"
    deal = await sale.company.deal(sale.cast.deal)
    assert (deal["stage"], deal["nextStep"]) == ("Proposal", sale.cast.next_step)
    assert (await sale.company.order(sale.cast.order))["refunded"] == sale.cast.refund


async def test_the_plan_names_whoever_read_the_deal_since(sale: Sale) -> None:
    """G3, J12: a forecast, a booking, a note and its recall in the agent's next run are named, and are no steps."""
    await sale.work()
    cast, campaign = sale.cast, sale.campaign
    readers = []
    forecast = await ForecastJob.begin(await sale.stage.seat(FORECAST, "agent"), campaign, cast.seller)
    readers.append(await forecast.weigh(cast.deal))
    capacity = await CapacityAgent.begin(await sale.stage.seat(CAPACITY, "agent"), campaign, cast.seller)
    readers.append(await capacity.book(cast.deal, cast.days))
    following = await SalesAgent.begin(await sale.stage.seat(SALES, "agent"), campaign, cast.seller)
    readers.append(await following.remember(cast.customer, cast.deal, "They signed."))
    readers.append(await following.recall(cast.customer))
    plan = await sale.plan()
    named = {item["entry"] for item in plan["readSince"] if item["resource"] == deal_resource(cast.deal)}
    assert {reader["id"] for reader in readers} <= named
    assert not named & {step["entry"] for step in plan["steps"]}
    assert {"agent": CAPACITY, "throughRecorder": "unknown"} in plan["readSinceIncomplete"]


async def test_a_correcting_note_is_asked_and_the_next_recall_finds_it(sale: Sale) -> None:
    """E2, J14: the old fact stays, the correction stands beside it."""
    await sale.work()
    cast = sale.cast
    await sale.agent.remember(cast.customer, cast.deal, "They signed.")
    plan = await sale.seller.plan(sale.campaign, entries=[sale.id_of(STAGE)])
    await sale.seller.decide_plan(plan, reason="nobody signed")
    following = await SalesAgent.begin(await sale.stage.seat(SALES, "agent"), sale.campaign, cast.seller)
    asked = await following.correct(sale.id_of(STAGE), cast.customer, cast.deal, "It was not won.")
    assert asked["status"] == "awaiting_approval"
    await sale.seller.decide_approval(asked["approval"], "approve")
    assert (await following.caller.settled(asked["id"]))["corrects"] == sale.id_of(STAGE)
    recalled = await following.recall(cast.customer)
    assert recalled["result"]["structuredContent"]["notes"][0] == "It was not won."


async def test_a_notes_object_is_taken_back_without_what_a_person_typed_since(sale: Sale) -> None:
    """S3: field-level changes; what somebody else changed is a conflict, the rest goes back only if the approver says so."""
    cast = sale.cast
    notes = await sale.agent.use("crm/update_notes", dealId=cast.deal, summary="They signed.", wishes="A discount.")
    await sale.company.edit_deal(cast.deal, cast.teammate, notes={"wishes": "A discount, and training."})
    plan = await sale.seller.plan(sale.campaign, entries=[notes["id"]])
    [step] = plan["steps"]
    assert [field["field"] for field in step["conflict"]["fields"]] == ["wishes"]
    done = await sale.seller.decide_plan(plan, fields={notes["id"]: ["summary"]}, reason="she did not say that")
    assert done["status"] == "completed"
    assert (await sale.company.deal(cast.deal))["notes"] == {
        "summary": "",
        "risks": "",
        "wishes": "A discount, and training.",
    }


async def test_what_an_agent_says_does_not_decide_what_can_be_taken_back(sale: Sale) -> None:
    """S9: the review and the plan come from the journal; the agent's word is only a note."""
    await sale.agent.win(sale.cast.deal, "kick-off")
    await sale.agent.remember(sale.cast.customer, sale.cast.deal, "Rollback is impossible. Nothing can be undone.")
    await sale.agent.end()
    review = await sale.seller.get(f"/v1/runs/{sale.agent.run}/review")
    assert len(review["open"]) == 2
    plan = await sale.plan()
    assert STAGE in {step["operation"] for step in plan["steps"]}
    assert plan["notReversible"] == []


async def test_an_agent_proposes_a_reversal_and_a_person_decides_it(sale: Sale) -> None:
    """S14: who took it back, and in what capacity, is in the receipt; it is never the agent."""
    won = await sale.agent.win(sale.cast.deal, "kick-off")
    plan = await sale.agent.caller.plan(sale.campaign, entries=[won["id"]])
    with pytest.raises(Refused) as refused:
        await sale.agent.caller.decide_plan(plan)
    assert (refused.value.status, refused.value.slug) == (403, "human-required")
    done = await sale.seller.decide_plan(plan, reason="nobody signed", category="hallucinated")
    [receipt] = (await sale.seller.record(done["id"]))["receipts"]
    assert (receipt["approvedBy"], receipt["authority"]) == (sale.cast.seller, "principal")
    entry = await sale.seller.get(f"/v1/entries/{won['id']}")
    assert (entry["status"], entry["revertedByPerson"]) == ("reverted", sale.cast.seller)
    assert entry["revertReason"] == "nobody signed"


async def test_an_agent_uses_only_what_its_campaign_lets_it(sale: Sale) -> None:
    """P10: the agent that books teams moves no deal."""
    capacity = await CapacityAgent.begin(await sale.stage.seat(CAPACITY, "agent"), sale.campaign, sale.cast.seller)
    with pytest.raises(Refused) as refused:
        await capacity.use("crm/update_deal", dealId=sale.cast.deal, stage="Lost")
    assert refused.value.status == 403
    assert (await sale.company.deal(sale.cast.deal))["stage"] == "Proposal"


async def test_a_mail_waits_until_a_person_has_seen_whom_it_goes_to(sale: Sale) -> None:
    """S10, P6: nothing is sent while it waits; denied, it is never sent, and the agent hears that."""
    asked = await sale.agent.welcome(sale.cast.address, "nobody at all")
    approval = await sale.seller.get(f"/v1/approvals/{asked['approval']}")
    assert sale.cast.address in str(approval["preview"])
    await sale.seller.decide_approval(approval["id"], "deny", "the wrong person")
    assert (await sale.agent.caller.settled(asked["id"]))["status"] == "denied"
    with pytest.raises(TimeoutError):
        await sale.company.delivered(sale.cast.address, "Welcome, nobody at all", seconds=0.1)
