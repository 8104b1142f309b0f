"""The game table as it joins a running installation: its campaign, its players, its tool server on the bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats

from examples.hosting import serving
from examples.opening import CampaignPlan, open_campaign, pool, register, write_notes
from examples.table.game import Game
from examples.table.server import game_server
from examples.table.web.screens import Screens
from takeback.example import Guide, Installation

OWNER = "gm"
PLAYERS = ("ada", "jonas", "leon", "mira")
AGENT = "narrator"
SUBJECT = "tools.table"

PLAN = CampaignPlan(
    key="game",
    name="The game table",
    owner=OWNER,
    members=dict.fromkeys(PLAYERS, "member"),
    agents={AGENT: {"memory": "yes"}},
    policy={"onSnapshotFailure": "proceed"},  # a game would rather go on than wait
)


@asynccontextmanager
async def game_table(installation: Installation) -> AsyncIterator[Guide]:
    """Entry point of group `takeback.examples`: the game table, until the context ends."""
    campaign = await open_campaign(installation, PLAN)
    async with pool(installation, "game") as connections:
        await Game(connections).prepare()
        bus = await nats.connect(installation.urls.nats_tools, name="example table", max_reconnect_attempts=-1)
        try:
            service = await game_server(connections).serve_nats(bus, SUBJECT)
            await register(installation, PLAN, {"table": {"transport": "nats", "subject": SUBJECT}})
            screens = Screens(connections, installation.urls.http, campaign, PLAYERS, installation.token)
            async with serving(screens.application()) as [at]:
                write_notes(installation.folder.path, {"table": at})
                try:
                    yield _guide(installation, campaign, at)
                finally:
                    await screens.close()
            await service.close()
        finally:
            await bus.close()


def _guide(installation: Installation, campaign: str, screens: str) -> Guide:
    return Guide(
        title=PLAN.name,
        look={
            "campaign": f"{installation.urls.http}/v1/campaigns/{campaign}",
            "live stream": f"{installation.urls.http}/v1/campaigns/{campaign}/stream",
            "players' screens": f"{screens}/PLAYER/ADVENTURE  (players: {', '.join(PLAYERS)})",
        },
        tokens={f"{OWNER} (owner)": installation.token(OWNER), "mira": installation.token("mira")},
    )
