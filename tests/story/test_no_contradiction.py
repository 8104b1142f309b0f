"""Nothing in one answer contradicts another (G11): review, plan, graph and journal say the same of every entry."""

from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from examples.agents.sales import SalesAgent
from examples.client import Answer, Caller, Refused
from examples.deal.example import OWNER, SALES
from examples.demo.cast import deal_cast
from examples.demo.stage import Stage
from takeback.example import Installation

SECTIONS = ("steps", "notReversible", "unresolved")


class Told:
    """A run with an entry of every kind, and what each service says of it."""

    def __init__(self, entries: list[Answer], plan: Answer, review: Answer, graph: Answer, reverted: str) -> None:
        self.entries = {entry["id"]: entry for entry in entries}
        self.plan = plan
        self.review = review
        self.graph = graph
        self.reverted = reverted

    def planned(self, section: str) -> dict[str, Answer]:
        return {item["entry"]: item for item in self.plan[section]}

    def reviewed(self, section: str) -> dict[str, Answer]:
        return {item["entry"]: item for item in self.review[section]}

    def writes(self) -> set[str]:
        return {entry["id"] for entry in self.entries.values() if entry["kind"] not in ("read", "reversal")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(installation: Installation) -> Told:
    async with Stage(installation) as stage:
        return await _played(stage)


async def _played(stage: Stage) -> Told:
    cast, campaign = deal_cast(53), stage.campaign("deal")
    company, seller, owner = await stage.company(), await stage.seat(cast.seller), await stage.seat(OWNER)
    await company.enter_deal(
        cast.deal, customer=cast.customer, stage="Proposal", amount=cast.amount, currency=cast.currency
    )
    await company.enter_order(cast.order, cast.customer, cast.paid, cast.currency)
    agent = await SalesAgent.begin(await stage.seat(SALES, "agent"), campaign, cast.seller)
    await agent.win(cast.deal, "kick-off")
    booked = await agent.book_kickoff(cast.deal, cast.customer, [cast.address])
    mail = await agent.welcome(cast.address, cast.customer)
    await owner.decide_approval(mail["approval"], "approve")
    await agent.caller.settled(mail["id"])
    refused = await agent.welcome(cast.address, cast.customer)
    await owner.decide_approval(refused["approval"], "deny", "twice")
    await agent.use("crm/get_deal", dealId=cast.deal)
    with pytest.raises(Refused) as failed:
        await agent.pay_back(cast.order, "99999999.00", cast.currency)
    assert failed.value.slug == "tool-failed"
    await agent.pay_back(cast.order, cast.refund, cast.currency)
    await agent.welcome(cast.address, cast.customer)  # waits for a person
    await seller.decide_plan(
        await seller.plan(campaign, entries=[booked["id"]]), leaveOut=await _others(seller, booked)
    )
    await company.edit_deal(cast.deal, cast.teammate, next_step=cast.next_step)
    return Told(
        await seller.entries(agent.run),
        await seller.plan(campaign, run=agent.run),
        await seller.get(f"/v1/runs/{agent.run}/review"),
        await seller.get(f"/v1/runs/{agent.run}/graph"),
        booked["id"],
    )


async def _others(seller: Caller, kept: Answer) -> list[str]:
    """What else a plan for *kept* would take back: the steps that build on it."""
    plan = await seller.plan(kept["campaign"], entries=[kept["id"]])
    return [step["entry"] for step in plan["steps"] if step["entry"] != kept["id"]]


async def test_every_target_stands_in_exactly_one_section(told: Told) -> None:
    """G4: and the plan of a run takes all of its writes as targets."""
    placed = [item["entry"] for section in SECTIONS for item in told.plan[section]]
    assert len(placed) == len(set(placed))
    assert set(told.plan["targets"]) == told.writes()
    assert set(told.plan["targets"]) <= set(placed)


async def test_what_the_review_says_of_an_entry_the_plan_says_too(told: Told) -> None:
    """G11: the same place, the same reason in the same words."""
    steps, open_ = told.planned("steps"), told.reviewed("open")
    assert open_
    assert set(open_) == set(steps) - {told.reverted}
    assert set(told.reviewed("reverted")) == {told.reverted}
    for name in ("notReversible", "unresolved"):
        planned, reviewed = told.planned(name), told.reviewed(name)
        closed = told.reviewed("closed") if name == "notReversible" else {}
        assert set(planned) == set(reviewed) | set(closed)
        for entry, item in reviewed.items():
            assert item["reason"] == planned[entry]["reason"]
            assert item.get("detail") == planned[entry].get("detail")
    for entry, window in open_.items():
        assert window["undoBy"] == steps[entry]["undoBy"]
        assert (window["via"], window["needsPerson"]) == (steps[entry]["via"], steps[entry]["needsPerson"])
    reasons = {item["reason"] for item in told.plan["notReversible"]}
    assert reasons == {"declared", "failed"}


async def test_graph_and_journal_tell_the_same_entries(told: Told) -> None:
    """G11: the projection's entry is the recorder's, member by member."""
    graph = {entry["id"]: entry for entry in told.graph["entries"]}
    assert set(graph) == set(told.entries)
    for entry, said in told.entries.items():
        differing = {name for name in said if graph[entry].get(name) != said[name]}
        assert not differing, {name: (said[name], graph[entry].get(name)) for name in differing}
    for link in told.graph["links"]:
        assert {link["entry"], link["dependsOn"]} <= set(told.entries)


async def test_a_plan_agrees_with_itself(told: Told) -> None:
    """G4, G5: what it says follows, what it observed and what it suggests are about what it lists, by its own words."""
    listed = {item["entry"] for section in SECTIONS for item in told.plan[section]}
    for section in ("consequences", "sideEffects", "suggestions"):
        assert {item["entry"] for item in told.plan[section]} <= listed, section
    done: list[str] = []
    for step in told.plan["steps"]:
        said = told.entries[step["entry"]]
        assert (step["label"], step["operation"], step["undoBy"]) == (
            said["label"],
            said["operation"],
            said["undo"]["undoBy"],
        )
        assert step["expects"] is None or step["expects"] in done
        assert _agrees(step)
        done.append(step["entry"])
    conflicts = {step["operation"] for step in told.plan["steps"] if step["conflict"]}
    assert conflicts == {"update_deal"}  # the one that the teammate edited since
    assert not {item["entry"] for item in told.plan["readSince"]} & set(told.entries)
    assert datetime.fromisoformat(told.plan["asOf"]) <= datetime.now(UTC)


def _agrees(step: dict[str, Any]) -> bool:
    """A conflict is shown exactly where the record has moved on from the version that will be sent."""
    moved = step["observedVersion"] != step["ifVersion"] and step["expects"] is None
    return step["conflict"] is None or moved
