"""What every scripted agent does: open a run for a principal, make calls in it, and say when it is done."""

from __future__ import annotations

from typing import Any, Self

from examples.client import Answer, Caller
from takeback.ids import new_id

MODEL = "scripted-1"


class Worker:
    """An agent at work in one run, for one *principal*. Its calls are one interaction."""

    def __init__(self, caller: Caller, campaign: str, principal: str, run: str) -> None:
        self.caller = caller
        self.campaign = campaign
        self.principal = principal
        self.run = run
        self.interaction = new_id("int")

    @classmethod
    async def begin(cls, caller: Caller, campaign: str, principal: str) -> Self:
        """Open a run; the agent is whoever *caller* is."""
        run = await caller.open_run(campaign, caller.sub, model=MODEL, principal=principal)
        return cls(caller, campaign, principal, run)

    async def use(self, tool: str, *, corrects: str | None = None, **arguments: Any) -> Answer:
        """One call; its entry. Where a person is asked first, the entry still waits: see `Caller.settled`."""
        how = {"corrects": corrects} if corrects else {}
        answer = await self.caller.call(self.run, tool, arguments, interaction=self.interaction, **how)
        return dict(answer["entry"])

    async def end(self) -> None:
        """Close the run."""
        await self.caller.post(f"/v1/runs/{self.run}/close")
