"""`takeback rebuild notifier` beside the running stack: the same reviews, and nothing is told again (N5)."""

import asyncio
import sys

from examples.agents.narrator import Narrator
from examples.demo.cast import game_cast
from examples.demo.stage import Stage
from examples.table.example import AGENT
from takeback.example import Installation
from tests.story.test_subscriber import subscribing


async def test_a_rebuild_beside_the_running_stack_tells_nothing_again(stage: Stage, installation: Installation) -> None:
    """N5, N1: the review is the same; subscribers and clients hear only what is new."""
    cast = game_cast(1234)
    await (await stage.game()).set_up(cast.scene)
    campaign = stage.campaign("game")
    rogue = await stage.seat(str(cast.rogue.player))
    narrator = await Narrator.begin(await stage.seat(AGENT, "agent"), campaign, str(cast.rogue.player))
    async with subscribing(installation.urls.nats) as (subscriber, _), rogue.listening(campaign) as heard:
        struck = await narrator.strike(cast.scene.adventure, cast.fighter.id, cast.blow)
        moved = await narrator.move(cast.scene.adventure, cast.fighter.id, 3, 4)
        undone = await rogue.undo(campaign, narrator.interaction)
        await subscriber.until("reversal.completed", plan=undone["plan"]["id"])
        for entry in (struck, moved):
            await subscriber.until("broadcast.interaction_reverted", invocationId=entry["id"])
            for payload in entry["broadcasts"]:
                await subscriber.until("broadcast.sent", entry=entry["id"], payload=payload)
        told = len(subscriber.heard)
        before = await rogue.get(f"/v1/runs/{narrator.run}/review")
        rebuilding = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "takeback", "rebuild", "notifier", "--data", str(installation.folder.path),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await rebuilding.communicate()
        assert rebuilding.returncode == 0, said.decode()
        assert "nothing was sent again" in said.decode()
        after = await rogue.get(f"/v1/runs/{narrator.run}/review")
        sent = await rogue.post(f"/v1/campaigns/{campaign}/broadcasts", {"payload": "after the rebuild"})
        await heard.first("broadcast.sent", lambda data: data["payload"] == "after the rebuild")
        await subscriber.until("broadcast.sent", payload="after the rebuild")
    assert {**before, "asOf": None} == {**after, "asOf": None}
    assert struck["id"] in {item["entry"] for item in after["reverted"]}
    assert [event["id"] for event in subscriber.heard[told:]] == [sent["id"]]
