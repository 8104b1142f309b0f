"""The narrator of the game table: it plays the monsters and keeps the books, and sometimes it misreads a round."""

from __future__ import annotations

from examples.agents.worker import Worker
from examples.client import Answer


class Narrator(Worker):
    """Plays one player's turn."""

    async def strike(self, adventure: str, creature: str, amount: int) -> Answer:
        """Deal damage to whoever the narrator believes was hit."""
        return await self.use(
            "table/damage_creature", adventure=adventure, creature=creature, amount=amount, kind="slashing"
        )

    async def let_die(self, adventure: str, creature: str) -> Answer:
        """Roll death saves, fail them, and mark the creature as dead."""
        return await self.use(
            "table/modify_creature",
            adventure=adventure,
            creature=creature,
            addConditions=["dead"],
            deathSaves={"successes": 0, "failures": 3},
        )

    async def move(self, adventure: str, creature: str, x: int, y: int) -> Answer:
        """Move a token."""
        return await self.use("table/move_token", adventure=adventure, creature=creature, x=x, y=y)
