"""The second story: a deal that was never won, four systems, and an e-mail that is gone."""

from __future__ import annotations

from typing import Any, TypeVar

from examples.agents.sales import CapacityAgent, ForecastJob, SalesAgent
from examples.agents.worker import Worker
from examples.client import Answer, Caller, Heard
from examples.deal.company import Company
from examples.deal.example import CAPACITY, FORECAST, OWNER, SALES
from examples.demo.cast import DealCast
from examples.demo.stage import Stage, entries_of
from examples.demo.telling import Names, Telling, short

AnyWorker = TypeVar("AnyWorker", bound=Worker)


async def play_deal(stage: Stage, cast: DealCast, tell: Telling) -> None:
    """Play it against the running services, and tell it."""
    story = _Story(stage, cast, tell, await stage.seat(cast.seller), await stage.seat(OWNER), await stage.company())
    await story.play()


class _Story:
    """The deal's story: *seller* is the principal of the run, *owner* is asked before the e-mail goes."""

    def __init__(
        self, stage: Stage, cast: DealCast, tell: Telling, seller: Caller, owner: Caller, company: Company
    ) -> None:
        self._stage = stage
        self._cast = cast
        self._tell = tell
        self._seller = seller
        self._owner = owner
        self._company = company
        self._campaign = stage.campaign("deal")

    async def play(self) -> None:
        """From the first call to the correcting note."""
        cast, tell = self._cast, self._tell
        deal = await self._enter()
        tell.title(
            f"The deal that was not won: {deal['dealId']}, {deal['customer']}, {deal['amount']} {deal['currency']}"
        )
        async with self._seller.listening(self._campaign) as heard:
            tell.scene(f"An agent works for {cast.seller}. It believes that the customer has signed.")
            run, won = await self._agent_works()
            tell.scene("Others go on from there.")
            await self._others_read()
            await self._teammate_edits()
            tell.scene("Nobody signed. What can still be taken back?")
            await self._review(run)
            tell.scene(f"{cast.seller} asks what it would mean to take the run back.")
            plan = await self._seller.plan(self._campaign, run=run)
            names = Names(await entries_of(self._seller, plan), run)
            tell.plan(plan, names)
            tell.scene("The teammate's edit stays, and so does the refund: the deposit was owed anyway.")
            await self._take_back(plan, names, won)
            tell.scene("Whoever listens has heard it.")
            await self._heard(heard, plan, names)
        tell.scene("What is left in the systems.")
        await self._what_is_left()
        tell.scene("The agent's memory still holds the old belief. A note corrects it.")
        await self._correct(won)

    async def _enter(self) -> Answer:
        cast = self._cast
        await self._company.enter_order(cast.order, cast.customer, cast.paid, cast.currency)
        return await self._company.enter_deal(
            cast.deal,
            customer=cast.customer,
            stage="Proposal",
            amount=cast.amount,
            currency=cast.currency,
            next_step="wait for an answer",
        )

    async def _agent_works(self) -> tuple[str, str]:
        cast = self._cast
        agent = await self._begin(SalesAgent, SALES)
        won = await agent.win(cast.deal, f"kick-off with {cast.contact}")
        await self._told(won)
        await self._told(await agent.book_kickoff(cast.deal, cast.customer, [cast.address]))
        asked = await agent.welcome(cast.address, cast.customer)
        await self._told(asked)
        await self._agree(asked)
        await self._told(await agent.caller.settled(asked["id"]))
        await self._told(await agent.pay_back(cast.order, cast.refund, cast.currency))
        await agent.end()
        return agent.run, str(won["id"])

    async def _agree(self, entry: Answer) -> None:
        """The owner agrees to a call that waits for a person."""
        approval = await self._owner.get(f"/v1/approvals/{entry['approval']}")
        self._tell.line(
            f"{approval['status']}: asked were {', '.join(asked['sub'] for asked in approval['asked'])}", "dim"
        )
        self._tell.line(f"They are told why: {'; '.join(approval['why'])}", "dim")
        decided = await self._owner.decide_approval(approval["id"], "approve", "go on")
        self._tell.line(f"{decided['status']} by {decided['decidedBy']}", "dim")

    async def _others_read(self) -> None:
        cast = self._cast
        notes = await self._begin(SalesAgent, SALES)
        await self._told(
            await notes.remember(cast.customer, cast.deal, f"{cast.customer} signed {cast.deal}, kick-off is booked.")
        )
        await notes.end()
        forecast = await self._begin(ForecastJob, FORECAST)
        weighed = await forecast.weigh(cast.deal)
        await self._told(weighed)
        self._tell.line(f"The forecast says {_structured(weighed)['total']}.", "dim")
        capacity = await self._begin(CapacityAgent, CAPACITY)
        await self._told(await capacity.book(cast.deal, cast.days))
        again = await self._begin(SalesAgent, SALES)
        await self._told(await again.recall(cast.customer))
        for worker in (forecast, capacity, again):
            await worker.end()

    async def _teammate_edits(self) -> None:
        cast = self._cast
        before = await self._company.deal(cast.deal)
        after = await self._company.edit_deal(cast.deal, cast.teammate, next_step=cast.next_step)
        self._tell.line(
            f"{cast.teammate} edits {after['dealId']} in the CRM by hand: nextStep: {short(before['nextStep'])} → "
            f"{short(after['nextStep'])} (v{before['version']} → v{after['version']})"
        )

    async def _review(self, run: str) -> None:
        review = await self._seller.get(f"/v1/runs/{run}/review")
        self._tell.review(review, Names(await self._seller.entries(run), run))

    async def _take_back(self, plan: Answer, names: Names, won: str) -> None:
        refund = next(step["entry"] for step in plan["steps"] if step["operation"] == "refund")
        self._tell.consequences(plan, refund, names, left_out=True)
        done = await self._seller.decide_plan(
            plan, leaveOut=[refund], fields={won: ["stage"]}, reason="nobody signed", category="hallucinated"
        )
        self._tell.line(f"Plan {done['id']}: {done['status']}", "bold")
        self._tell.receipts(await self._seller.record(done["id"]), names)

    async def _heard(self, heard: Heard, plan: Answer, names: Names) -> None:
        record = await self._seller.record(plan["id"])
        for receipt in record["receipts"]:
            if receipt["outcome"] == "reverted":
                data = await heard.first(
                    "broadcast.interaction_reverted",
                    lambda data, entry=receipt["entry"]: data["invocationId"] == entry,  # type: ignore[misc]
                )
                self._tell.line(f"{data['type']}: {names[data['invocationId']]}, source {data['source']}")

    async def _what_is_left(self) -> None:
        cast, tell = self._cast, self._tell
        deal = await self._company.deal(cast.deal)
        tell.line(f"CRM: {deal['dealId']} stands at {deal['stage']}, next step: {deal['nextStep']}")
        tell.line(f"Calendar: {len(await self._company.meetings(cast.deal))} meetings about {deal['dealId']}")
        order = await self._company.order(cast.order)
        tell.line(f"Payments: {order['refunded']} of {order['paid']} {order['currency']} paid back on {order['id']}")
        letters = await self._company.delivered(cast.address, f"Cancelled: Kick-off with {cast.customer}")
        tell.line(f"In {cast.address}'s mailbox: {'; '.join(letters)}")

    async def _correct(self, won: str) -> None:
        """The correcting write is asked like everything that repairs, and the next recall finds it."""
        cast = self._cast
        deal = await self._company.deal(cast.deal)
        agent = await self._begin(SalesAgent, SALES)
        asked = await agent.correct(
            won, cast.customer, cast.deal, f"{deal['dealId']} was not won: it is back at {deal['stage']}."
        )
        await self._told(asked)
        await self._agree(asked)
        await self._told(await agent.caller.settled(asked["id"]))
        recalled = await agent.recall(cast.customer)
        for note in _structured(recalled)["notes"][:2]:
            self._tell.line(f"recalled: {note}")
        await agent.end()

    async def _begin(self, kind: type[AnyWorker], agent: str) -> AnyWorker:
        return await kind.begin(await self._stage.seat(agent, "agent"), self._campaign, self._cast.seller)

    async def _told(self, entry: Answer) -> None:
        """Tell an entry as the journal has it."""
        self._tell.entry(await self._seller.get(f"/v1/entries/{entry['id']}"))


def _structured(entry: Answer) -> dict[str, Any]:
    """What a tool answered, as the entry keeps it."""
    result = entry["result"]
    return dict(result.get("structuredContent") or result)
