"""Another system, which has nothing but its NATS user and the folder `schemas/`, follows a reversal to its end (N6)."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema_rs
import nats
import pytest
import yaml
from nats.aio.msg import Msg

from examples.agents.narrator import Narrator
from examples.demo.cast import game_cast
from examples.demo.stage import Stage
from examples.table.example import AGENT
from takeback import bus
from takeback.example import Installation
from tests.waiting import WAIT_SECONDS, eventually

SCHEMAS = Path(__file__).parents[2] / "schemas"


class Subscriber:
    """Knows the bus by `asyncapi.yaml`: which subject carries which schema. Nothing here is imported from Takeback."""

    def __init__(self) -> None:
        document = yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text())
        messages = document["components"]["messages"]
        self._channels = []
        for name, channel in document["channels"].items():
            subject = re.compile(re.escape(channel["address"]).replace(r"\{campaign\}", "([^.]+)"))
            schema = json.loads((SCHEMAS / messages[name]["payload"]["schema"]["$ref"]).read_text())
            self._channels.append((subject, jsonschema_rs.validator_for(schema, validate_formats=True)))
        self.heard: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        self._more = asyncio.Event()

    async def take(self, message: Msg) -> None:
        event = json.loads(message.data)
        validators = [validator for subject, validator in self._channels if subject.fullmatch(message.subject)]
        if len(validators) != 1:
            self.wrong.append(f"{message.subject}: {len(validators)} channels")
        self.wrong += [
            f"{message.subject} at {error.instance_path}: {error.message}"
            for validator in validators
            for error in validator.iter_errors(event)
        ]
        self.heard.append(event)
        self._more.set()

    async def until(self, kind: str, **expected: Any) -> dict[str, Any]:
        """The data of the first event of *kind* whose members are as expected."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                for event in self.heard:
                    data = event["data"]
                    if event["type"].endswith(f".{kind}") and expected.items() <= data.items():
                        return dict(data)
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def subscribing(url: str) -> AsyncIterator[tuple[Subscriber, nats.NATS]]:
    subscriber, refusals = Subscriber(), []

    async def on_error(error: Exception) -> None:
        refusals.append(error)

    client = await nats.connect(url, error_cb=on_error)
    try:
        await client.subscribe("takeback.>", cb=subscriber.take)
        await bus.settle(client)
        yield subscriber, client
    finally:
        await client.close()


async def test_a_subscriber_that_knows_only_the_schemas_follows_a_reversal_to_its_end(
    stage: Stage, installation: Installation
) -> None:
    """N6, N5: every message is as its schema says, from the call to the last receipt and the broadcast."""
    cast = game_cast(4711)
    game = await stage.game()
    await game.set_up(cast.scene)
    campaign = stage.campaign("game")
    async with subscribing(installation.urls.nats) as (subscriber, _):
        narrator = await Narrator.begin(await stage.seat(AGENT, "agent"), campaign, str(cast.rogue.player))
        struck = await narrator.strike(cast.scene.adventure, cast.fighter.id, cast.blow)
        rogue = await stage.seat(str(cast.rogue.player))
        undone = await rogue.undo(campaign, narrator.interaction, reason="misread", category="misread")
        assert undone["reverted"] is True

        opened = await subscriber.until("run.opened", agent=AGENT)
        decided = await subscriber.until("plan.decided", plan=undone["plan"]["id"])
        step = await subscriber.until("reversal.step", plan=undone["plan"]["id"])
        completed = await subscriber.until("reversal.completed", plan=undone["plan"]["id"])
        told = await subscriber.until("broadcast.interaction_reverted", invocationId=struck["id"])
        await eventually(lambda: not gaps(subscriber.heard))
    assert subscriber.wrong == []
    assert opened["principal"] == str(cast.rogue.player)
    assert (decided["decision"], decided["by"]["sub"]) == ("approve", str(cast.rogue.player))
    assert (step["receipt"]["entry"], step["receipt"]["outcome"]) == (struck["id"], "reverted")
    assert [receipt["entry"] for receipt in completed["record"]["receipts"]] == [struck["id"]]
    assert (told["source"], told["interactionComplete"]) == ("system", True)


def gaps(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Where something is missing: in each stream an event names the published one before it. One may come late, or twice."""
    placed = (event["data"] for event in events if "seq" in event["data"])
    places = sorted({(data["stream"], data["seq"], data["after"]) for data in placed})
    return [
        (stream, seq)
        for (other, last, _), (stream, seq, after) in pairwise(places)
        if stream == other and after != last
    ]


async def test_a_subscriber_may_say_nothing_and_ask_nothing(installation: Installation) -> None:
    """N6: its user hears `takeback.>` and has no other right."""
    async with subscribing(installation.urls.nats) as (_, client):
        for subject in ("takeback.cmp_x.entry.committed", "rpc.recorder.heads", "tools.table.call"):
            with pytest.raises(nats.errors.Error):
                await client.request(subject, b"{}", timeout=0.2)
