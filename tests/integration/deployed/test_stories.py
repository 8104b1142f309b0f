"""Both stories pass through the deployed edge, and a recorder that is killed on the way changes nothing of them."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from examples.agents.sales import SalesAgent
from examples.deal.example import SALES
from examples.demo.cast import deal_cast, game_cast
from examples.demo.deal import play_deal
from examples.demo.fighter import play_fighter
from takeback.toolserver.server import UNDO_TOOL
from tests.integration.deployed.conftest import Deployed

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest_asyncio.fixture(loop_scope="package", autouse=True)
async def revived(deployed: Deployed) -> AsyncIterator[None]:
    """What was killed is back afterwards, as compose would have it."""
    yield
    await deployed.deployment.revive()


async def test_the_fighters_story_passes_through_the_edge(deployed: Deployed) -> None:
    """E1, issue 2: over the bus, with two recorders and each service by itself."""
    cast = game_cast(11)
    await play_fighter(deployed.stage, cast, deployed.tell)
    row = await (await deployed.stage.game()).creature(cast.scene.adventure, cast.fighter.id)
    assert (row["hp"], row["conditions"]) == (cast.fighter.hp, [])
    told = deployed.told.getvalue()
    assert told.count("source system") == 4
    assert "already_reverted" in told


async def test_the_deals_story_ends_right_though_a_recorder_is_killed_in_the_middle_of_an_undo(
    deployed: Deployed,
) -> None:
    """E2, J17, G9: the meeting was cancelled and the answer not heard; the other recorder goes on, nothing happens twice."""
    cast, killed = deal_cast(10), []

    async def kill(recorder: str) -> None:
        await deployed.deployment.kill(recorder)
        killed.append(recorder)

    deployed.wire.once("calendar", UNDO_TOOL, kill)
    await play_deal(deployed.stage, cast, deployed.tell)
    assert len(killed) == 1
    assert len(set(deployed.wire.keys("calendar", UNDO_TOOL))) == 1
    company = await deployed.stage.company()
    deal = await company.deal(cast.deal)
    assert (deal["stage"], deal["nextStep"]) == ("Proposal", cast.next_step)
    assert await company.meetings(cast.deal) == []
    assert (await company.order(cast.order))["refunded"] == cast.refund
    letters = await company.delivered(cast.address, f"Cancelled: Kick-off with {cast.customer}")
    assert len(letters) == len(set(letters)) == 3
    # What is asked and what can still be taken back may come in one letter: its subject names the first of them. Nothing
    # else happens to this seller here: who has just got a letter gets the next one half a minute later.
    assert await deployed.deployment.delivered(f"{cast.seller}@acme.example", "asks for your approval")


async def test_a_call_whose_recorder_dies_is_asked_again_under_its_key_and_done_once(deployed: Deployed) -> None:
    """J7, J17, S2: the edge says that it does not know, and never sends it again; the journal does."""
    cast, killed = deal_cast(13), []
    company = await deployed.stage.company()
    await company.enter_order(cast.order, cast.customer, cast.paid, cast.currency)
    caller = await deployed.stage.seat(SALES, "agent")
    agent = await SalesAgent.begin(caller, deployed.stage.campaign("deal"), cast.seller)

    async def kill(recorder: str) -> None:
        await deployed.deployment.kill(recorder)
        killed.append(recorder)

    deployed.wire.once("payments", "refund", kill)
    arguments = {"orderId": cast.order, "amount": cast.refund, "currency": cast.currency, "reason": "goodwill"}
    body = {"server": "payments", "operation": "refund", "arguments": arguments}

    async def ask() -> httpx.Response:
        return await caller._http.post(f"/v1/runs/{agent.run}/calls", json=body, headers={"Idempotency-Key": "once"})

    first = await ask()
    assert (first.status_code, first.json()["title"]) == (502, "no answer")
    again = await ask()
    entry = await caller.settled(again.json()["entry"]["id"])
    entry = await caller.until(f"/v1/entries/{entry['id']}", lambda found: found["status"] == "committed")
    assert [each["id"] for each in await caller.entries(agent.run)] == [entry["id"]]
    assert deployed.wire.keys("payments", "refund").count(entry["id"]) == 1
    assert (await company.order(cast.order))["refunded"] == cast.refund
