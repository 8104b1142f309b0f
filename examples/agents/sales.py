"""The sales agent, and the two jobs that read what it did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from examples.agents.worker import Worker
from examples.client import Answer


def deal_resource(deal: str) -> str:
    """How the CRM names a deal."""
    return f"crm://acme/deal/{deal}"


class SalesAgent(Worker):
    """Closes a deal: the stage, a kick-off meeting, an e-mail, a refund of the deposit."""

    async def win(self, deal: str, next_step: str) -> Answer:
        """Believe that the customer has signed."""
        return await self.use("crm/update_deal", dealId=deal, stage="Won", nextStep=next_step)

    async def book_kickoff(self, deal: str, customer: str, attendees: list[str]) -> Answer:
        """Invite everybody to a kick-off next week."""
        starts = (datetime.now(UTC) + timedelta(days=7)).replace(hour=9, minute=0, second=0, microsecond=0)
        return await self.use(
            "calendar/create_meeting",
            dealId=deal,
            title=f"Kick-off with {customer}",
            startsAt=starts.isoformat(),
            attendees=attendees,
        )

    async def welcome(self, address: str, customer: str) -> Answer:
        """Write to the customer. This cannot be taken back, so a person is asked."""
        return await self.use(
            "mail/send_mail", to=address, subject=f"Welcome, {customer}", body="We are glad that you signed."
        )

    async def pay_back(self, order: str, amount: str, currency: str) -> Answer:
        """Pay the deposit back."""
        return await self.use(
            "payments/refund", orderId=order, amount=amount, currency=currency, reason="deposit of a deal that was won"
        )

    async def remember(self, customer: str, deal: str, note: str) -> Answer:
        """Keep a note, and say where it comes from."""
        return await self.use("memory/remember", topic=customer, note=note, sources=[deal_resource(deal)])

    async def correct(self, entry: str, customer: str, deal: str, note: str) -> Answer:
        """Put a note beside what was believed, in place of *entry*'s outcome. A person is asked."""
        return await self.use(
            "memory/remember", corrects=entry, topic=customer, note=note, sources=[deal_resource(deal)]
        )

    async def recall(self, customer: str) -> Answer:
        """Ask the memory."""
        return await self.use("memory/recall", topic=customer)


class ForecastJob(Worker):
    """Weighs deals."""

    async def weigh(self, deal: str) -> Answer:
        """What the deal is expected to bring in."""
        return await self.use("forecast/weigh_deals", dealIds=[deal])


class CapacityAgent(Worker):
    """Books teams."""

    async def book(self, deal: str, days: int) -> Answer:
        """Book a team for a deal that was won."""
        return await self.use("capacity/book_team", dealId=deal, team="onboarding", days=days)
