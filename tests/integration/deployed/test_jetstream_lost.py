"""All JetStream data is deleted at a bad moment: the journal holds the truth, so nothing is lost and nothing is told twice."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx_sse
import nats
import pytest
from nats.aio.msg import Msg

from examples.agents.sales import SalesAgent
from examples.client import Answer, Caller
from examples.deal.example import SALES
from examples.demo.cast import DealCast, deal_cast
from takeback import bus
from takeback.toolserver.server import UNDO_TOOL
from tests.integration.deployed.conftest import Deployed

pytestmark = pytest.mark.asyncio(loop_scope="package")

REVERTED = "broadcast.interaction_reverted"
ANNOUNCED = ("ntf_", "brc_")
PROJECTIONS = ("planner", "notifier")


class Loss:
    """A won deal that is being taken back while the bus loses everything it has kept."""

    def __init__(self, deployed: Deployed, cast: DealCast, seller: Caller, agent: SalesAgent, won: str) -> None:
        self.deployed = deployed
        self.deployment = deployed.deployment
        self.cast = cast
        self.campaign = agent.campaign
        self.seller = seller
        self.agent = agent
        self.won = won

    @classmethod
    async def begin(cls, deployed: Deployed, seed: int) -> "Loss":
        cast, stage = deal_cast(seed), deployed.stage
        company = await stage.company()
        await company.enter_deal(
            cast.deal, customer=cast.customer, stage="Proposal", amount=cast.amount, currency=cast.currency
        )
        agent = await SalesAgent.begin(await stage.seat(SALES, "agent"), stage.campaign("deal"), cast.seller)
        won = await agent.win(cast.deal, "kick-off")
        return cls(deployed, cast, await stage.seat(cast.seller), agent, won["id"])

    async def plan(self) -> Answer:
        return await self.seller.plan(self.campaign, entries=[self.won])

    async def decide(self, plan: Answer, wait: int = 20) -> None:
        body = {"decision": "approve", "digest": plan["digest"], "reason": "nobody signed"}
        await self.seller.post(f"/v1/plans/{plan['id']}/decision?wait={wait}", body)

    async def lose(self) -> None:
        """The bus forgets everything, and whoever reads from it is killed and starts again."""
        await self.deployment.kill(*PROJECTIONS)
        await self.deployment.lose_jetstream()
        await self.agent.end()  # the run's last record is written while there is no bus
        await self.deployment.start("nats")
        await self.deployment.start(*PROJECTIONS)


@asynccontextmanager
async def subscribing(url: str) -> AsyncIterator[list[dict[str, Any]]]:
    """What another system hears, which comes back whenever the bus does."""
    heard: list[dict[str, Any]] = []

    async def take(message: Msg) -> None:
        heard.append(json.loads(message.data))

    client = await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
    try:
        await client.subscribe("takeback.>", cb=take)
        await bus.settle(client)
        yield heard
    finally:
        await client.close()


async def place_in_stream(caller: Caller, campaign: str) -> str:
    """The id after which a live stream that begins now would go on."""
    async with httpx_sse.aconnect_sse(caller._http, "GET", f"/v1/campaigns/{campaign}/stream") as source:
        return source.response.headers["last-event-id"]


async def streamed(caller: Caller, campaign: str, place: str, until: str) -> list[tuple[str, Answer]]:
    """What a client that resumes at *place* hears, up to the broadcast *until*."""
    heard = []
    headers = {"Last-Event-ID": place}
    async with asyncio.timeout(20):
        async with httpx_sse.aconnect_sse(
            caller._http, "GET", f"/v1/campaigns/{campaign}/stream", headers=headers
        ) as source:
            async for event in source.aiter_sse():
                heard.append((event.event, event.json()))
                if event.event == "broadcast.sent" and event.json()["data"]["payload"] == until:
                    return heard
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(
    "moment",
    ["before the decision", "between decision and completion", "before anybody heard of the end", "at the end"],
)
async def test_all_of_jetstream_may_be_lost_at_any_moment(deployed: Deployed, moment: str) -> None:
    """Principle 1: planner and notifier catch up, no decision and no last event is lost, nothing is announced twice."""
    loss = await Loss.begin(deployed, 100 + len(moment))
    seller, campaign, deployment = loss.seller, loss.campaign, loss.deployment
    place = await place_in_stream(seller, campaign)
    async with subscribing(deployed.stage._installation.urls.nats) as subscriber:
        plan = await loss.plan()
        match moment:
            case "before the decision":
                await loss.lose()
                await loss.decide(plan)
            case "between decision and completion":
                lost = asyncio.Event()

                async def lose(_: str) -> None:
                    await loss.lose()
                    lost.set()

                deployed.wire.once("crm", UNDO_TOOL, lose)
                await loss.decide(plan, wait=0)
                await lost.wait()
            case "before anybody heard of the end":
                await deployment.kill("notifier")
                await loss.decide(plan)
                await loss.lose()
            case "at the end":
                await loss.decide(plan)
                await loss.lose()

        done = await seller.until(f"/v1/plans/{plan['id']}", lambda found: found["status"] == "completed")
        record = await seller.record(plan["id"])
        review = await seller.get(f"/v1/runs/{loss.agent.run}/review")
        await seller.post(f"/v1/campaigns/{campaign}/broadcasts", {"payload": moment})
        heard = await streamed(seller, campaign, place, moment)

    assert done["digest"] == plan["digest"]
    assert (record["approvedBy"], [receipt["outcome"] for receipt in record["receipts"]]) == (seller.sub, ["reverted"])
    assert [item["entry"] for item in review["reverted"]] == [loss.won]
    assert review["open"] == []
    company = await deployed.stage.company()
    assert (await company.deal(loss.cast.deal))["stage"] == "Proposal"

    kinds = Counter(kind for kind, event in heard if _is_about(event, loss, plan["id"]))
    assert {kind: kinds[kind] for kind in ("plan.decided", "entry.reverted", "reversal.completed", REVERTED)} == {
        "plan.decided": 1,
        "entry.reverted": 1,
        "reversal.completed": 1,
        REVERTED: 1,
    }
    assert (kinds["run.closed"], kinds["review.ready"]) == (1, 1)
    assert max(Counter(event["id"] for _, event in heard).values()) == 1
    # A record that no stream took is published again, under its own id; an announcement is not even that.
    announced = Counter(event["id"] for event in subscriber if event["id"].startswith(ANNOUNCED))
    assert set(announced.values()) == {1}


def _is_about(event: Answer, loss: Loss, plan: str) -> bool:
    mentioned = [event["data"].get(name) for name in ("run", "plan", "entry", "invocationId")]
    ids = {each["id"] if isinstance(each, dict) else each for each in mentioned}
    return bool(ids & {loss.agent.run, plan, loss.won})
