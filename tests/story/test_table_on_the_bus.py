"""The game table on the bus answers the recorder's user, and nobody else can ask it."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import nats
import pytest
from nats.errors import NoRespondersError

from examples.table.example import SUBJECT
from examples.table.game import Game
from examples.table.server import game_server
from takeback import json
from tests.servers import NatsServer
from tests.story.scene import ADVENTURE, FIGHTER, SCENE
from tests.waiting import WAIT_SECONDS

BLOW = {
    "name": "damage_creature",
    "arguments": {"adventure": ADVENTURE, "creature": FIGHTER, "amount": 9, "kind": "fire"},
}


@pytest.fixture
async def game(empty_postgres_url: str, nats_server: NatsServer) -> AsyncIterator[Game]:
    """The game, its tool server running as the bus's user for tools."""
    async with asyncpg.create_pool(
        empty_postgres_url, min_size=1, max_size=3, server_settings={"search_path": "game"}
    ) as pool:
        game = Game(pool)
        await game.prepare()
        await game.set_up(SCENE)
        bus = await nats.connect(nats_server.tools_url)
        service = await game_server(pool).serve_nats(bus, SUBJECT)
        yield game
        await service.close()
        await bus.close()


async def test_the_recorder_reaches_the_table(game: Game, nats_server: NatsServer) -> None:
    bus = await nats.connect(nats_server.url)
    try:
        answer = json.loads((await bus.request(f"{SUBJECT}.call", json.dumps(BLOW), timeout=WAIT_SECONDS)).data)
        assert answer["structuredContent"]["hp"] == 22
    finally:
        await bus.close()


@pytest.mark.parametrize("user", ["subscriber_url", "tools_url"])
async def test_nobody_but_the_recorder_can_ask_the_table(user: str, game: Game, nats_server: NatsServer) -> None:
    """J16: the bus itself refuses a direct call; the fighter is not hurt."""
    refused: asyncio.Queue[str] = asyncio.Queue()

    async def on_error(error: Exception) -> None:
        await refused.put(str(error).lower())

    bus = await nats.connect(getattr(nats_server, user), error_cb=on_error)
    try:
        await bus.publish(f"{SUBJECT}.call", json.dumps(BLOW))
        assert "permissions violation" in await asyncio.wait_for(refused.get(), WAIT_SECONDS)
    finally:
        await bus.close()
    assert (await game.creature(ADVENTURE, FIGHTER))["hp"] == 31


async def test_without_the_table_the_recorder_hears_that_nobody_serves(nats_server: NatsServer) -> None:
    bus = await nats.connect(nats_server.url)
    try:
        with pytest.raises(NoRespondersError):
            await bus.request(f"{SUBJECT}.call", json.dumps(BLOW), timeout=WAIT_SECONDS)
    finally:
        await bus.close()
