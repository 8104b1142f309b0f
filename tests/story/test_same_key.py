"""The same POST again with the same `Idempotency-Key`, at every door: what it made the first time, and nothing anew."""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from examples.agents.narrator import Narrator
from examples.client import Caller
from examples.demo.cast import game_cast
from examples.demo.stage import Stage
from examples.table.example import AGENT, OWNER
from takeback.ids import new_id
from takeback.messages.doors import DOORS
from tests.waiting import eventually

DYING = """
import os
from mcp.server import MCPServer

server = MCPServer("dying")

@server.tool()
def die() -> str:
    \"\"\"Never answers.\"\"\"
    os._exit(1)

server.run("stdio")
"""


@dataclass
class Scene:
    """A game table of this test's own, where everything that a POST can be about happens."""

    folder: Path
    stage: Stage
    campaign: str
    owner: Caller
    agent: Caller
    narrator: Narrator
    cast: Any

    async def run(self) -> str:
        return await self.owner.open_run(self.campaign, OWNER, model="m", principal=OWNER)

    async def turn(self) -> tuple[str, str]:
        """An entry in a turn, and a run, of its own; the turn's id."""
        worker = await Narrator.begin(self.agent, self.campaign, OWNER)
        entry = await worker.move(self.cast.scene.adventure, self.cast.fighter.id, 1, 1)
        return entry["id"], worker.interaction


Ask = Callable[[Scene], Awaitable[tuple[str, Any, Any]]]
"""Puts a scene up; where to POST, what, and what else the same key may not stand for."""


async def open_campaign(_: Scene) -> tuple[str, Any, Any]:
    return "/v1/campaigns", {"name": "one"}, {"name": "another"}


async def open_run(scene: Scene) -> tuple[str, Any, Any]:
    wanted = {"agent": OWNER, "model": "m", "principal": OWNER}
    return f"/v1/campaigns/{scene.campaign}/runs", wanted, {**wanted, "model": "n"}


async def close_run(scene: Scene) -> tuple[str, Any, Any]:
    return f"/v1/runs/{await scene.run()}/close", {}, {"why": "x"}


async def pause_run(scene: Scene) -> tuple[str, Any, Any]:
    return f"/v1/runs/{await scene.run()}/pause", {}, {"why": "x"}


async def resume_run(scene: Scene) -> tuple[str, Any, Any]:
    run = await scene.run()
    await scene.owner.post(f"/v1/runs/{run}/pause")
    return f"/v1/runs/{run}/resume", {}, {"why": "x"}


async def call(scene: Scene) -> tuple[str, Any, Any]:
    wanted = _move(scene, 3)
    return f"/v1/runs/{await scene.run()}/calls", wanted, _move(scene, 4)


async def preview(scene: Scene) -> tuple[str, Any, Any]:
    return f"/v1/runs/{await scene.run()}/previews", _move(scene, 3), _move(scene, 4)


async def resolve(scene: Scene) -> tuple[str, Any, Any]:
    (scene.folder / "dying.py").write_text(DYING)
    dying = {"transport": "mcp", "command": sys.executable, "args": [str(scene.folder / "dying.py")]}
    await scene.owner.put(f"/v1/campaigns/{scene.campaign}/servers/dying", dying)
    await scene.owner.put(f"/v1/campaigns/{scene.campaign}/policy", {"operations": {"dying/die": "allow"}})
    body = {"server": "dying", "operation": "die", "arguments": {}}
    run = await scene.run()
    await scene.owner._http.post(f"/v1/runs/{run}/calls", json=body)
    (doubted,) = await scene.owner.entries(run)
    assert doubted["status"] == "in_doubt"
    wanted = {"outcome": "did-not-happen", "reason": "I looked"}
    return f"/v1/entries/{doubted['id']}/resolution", wanted, {**wanted, "outcome": "happened"}


async def decide_approval(scene: Scene) -> tuple[str, Any, Any]:
    entry, _ = await scene.turn()
    asked = await scene.owner.post(
        f"/v1/runs/{await scene.run()}/calls", {**_move(scene, 5), "corrects": entry}
    )  # what corrects is always asked
    wanted = {"decision": "deny", "reason": "no"}
    return f"/v1/approvals/{asked['approval']['id']}/decision", wanted, {**wanted, "decision": "approve"}


async def propose(scene: Scene) -> tuple[str, Any, Any]:
    (first, _), (second, _) = await scene.turn(), await scene.turn()
    return f"/v1/campaigns/{scene.campaign}/plans", {"entries": [first]}, {"entries": [second]}


async def decide_plan(scene: Scene) -> tuple[str, Any, Any]:
    entry, _ = await scene.turn()
    plan = await scene.owner.plan(scene.campaign, entries=[entry])
    wanted = {"decision": "approve", "digest": plan["digest"]}
    return f"/v1/plans/{plan['id']}/decision?wait=20", wanted, {**wanted, "decision": "reject"}


async def undo(scene: Scene) -> tuple[str, Any, Any]:
    _, interaction = await scene.turn()
    return f"/v1/campaigns/{scene.campaign}/interactions/{interaction}/undo", {"reason": "misread"}, {"reason": "x"}


async def confirm(scene: Scene) -> tuple[str, Any, Any]:
    graph = await scene.owner.get(f"/v1/runs/{scene.narrator.run}/graph")
    return f"/v1/links/{graph['links'][0]['id']}/confirm", {}, {"why": "x"}


async def acknowledge(scene: Scene) -> tuple[str, Any, Any]:
    entries = await scene.owner.entries(scene.narrator.run)
    return f"/v1/runs/{scene.narrator.run}/review/acknowledgement", {}, {"entries": [entries[0]["id"]]}


async def broadcast(scene: Scene) -> tuple[str, Any, Any]:
    return f"/v1/campaigns/{scene.campaign}/broadcasts", {"payload": "one"}, {"payload": "another"}


async def send_again(scene: Scene) -> tuple[str, Any, Any]:
    hook = {"url": "https://hooks.takeback.invalid/x", "types": ["broadcast.sent"]}
    await scene.owner.put(f"/v1/campaigns/{scene.campaign}/webhooks/hook", hook)
    await scene.owner.post(f"/v1/campaigns/{scene.campaign}/broadcasts", {"payload": "for the hook"})

    async def waiting() -> list[Any]:
        page = await scene.owner.get(f"/v1/campaigns/{scene.campaign}/deliveries")
        return list(page["items"])

    (delivery, *_) = await eventually(waiting)
    return f"/v1/campaigns/{scene.campaign}/deliveries/{delivery['id']}/retry", {}, {"why": "x"}


async def ticket(_: Scene) -> tuple[str, Any, Any]:
    return "/v1/tickets", {}, {"why": "x"}


_C, _R = "/v1/campaigns/{campaign}", "/v1/runs/{run}"
SCENES: dict[str, Ask] = {
    "/v1/campaigns": open_campaign,
    f"{_C}/runs": open_run,
    f"{_R}/close": close_run,
    f"{_R}/pause": pause_run,
    f"{_R}/resume": resume_run,
    f"{_R}/calls": call,
    f"{_R}/previews": preview,
    "/v1/entries/{entry}/resolution": resolve,
    "/v1/approvals/{approval}/decision": decide_approval,
    f"{_C}/plans": propose,
    "/v1/plans/{plan}/decision": decide_plan,
    f"{_C}/interactions/{{interaction}}/undo": undo,
    "/v1/links/{link}/confirm": confirm,
    f"{_R}/review/acknowledgement": acknowledge,
    f"{_C}/broadcasts": broadcast,
    f"{_C}/deliveries/{{delivery}}/retry": send_again,
    "/v1/tickets": ticket,
}


@pytest_asyncio.fixture
async def scene(stage: Stage, tmp_path: Path) -> Scene:
    """A campaign of its own with the table's tools, and a run in which two calls were made."""
    owner, agent = await stage.seat(OWNER), await stage.seat(AGENT, "agent")
    campaign = (await owner.post("/v1/campaigns", {"name": "twice", "serialize": "resource"}))["id"]
    await owner.put(f"/v1/campaigns/{campaign}/agents/{AGENT}", {"memory": "no"})
    await owner.put(f"/v1/campaigns/{campaign}/servers/table", {"transport": "nats", "subject": "tools.table"})
    cast = game_cast(sum(map(ord, campaign)))
    await (await stage.game()).set_up(cast.scene)
    narrator = await Narrator.begin(agent, campaign, OWNER)
    for step in (1, 2):
        await narrator.move(cast.scene.adventure, cast.fighter.id, step, step)
    return Scene(tmp_path, stage, campaign, owner, agent, narrator, cast)


def test_every_post_is_asked_twice() -> None:
    """contract.md: `Idempotency-Key` on any POST."""
    assert {door.path for door in DOORS if door.method == "POST"} == SCENES.keys()


@pytest.mark.parametrize("path", SCENES)
async def test_the_same_key_does_a_thing_once_and_stands_for_nothing_else(scene: Scene, path: str) -> None:
    """contract.md: the same thing in its present state; another body 422."""
    where, body, other = await SCENES[path](scene)
    key = {"Idempotency-Key": new_id("key")}
    ask = scene.owner._http.post
    first = await ask(where, json=body, headers=key)
    assert first.is_success, first.text
    again = await ask(where, json=body, headers=key)
    told, told_again = first.json(), again.json()
    if where.endswith("/previews"):  # what a dry run foresees is asked anew; the preview is the same
        told, told_again = told["id"], told_again["id"]
    assert (again.status_code, told_again) == (first.status_code, told)
    refused = await ask(where, json=other, headers=key)
    assert refused.status_code == 422, refused.text
    slug = refused.json()["type"].rsplit("/", 1)[-1]
    assert slug == ("invalid" if other == {"why": "x"} else "idempotency-conflict")


async def test_one_key_at_two_turns_takes_both_back(scene: Scene) -> None:
    """contract.md: a key counts per path."""
    key = {"Idempotency-Key": new_id("key")}
    for _ in range(2):
        _, interaction = await scene.turn()
        done = await scene.owner._http.post(
            f"/v1/campaigns/{scene.campaign}/interactions/{interaction}/undo", json={}, headers=key
        )
        assert done.json()["reverted"] is True, done.text


def _move(scene: Scene, x: int) -> dict[str, Any]:
    arguments = {"adventure": scene.cast.scene.adventure, "creature": scene.cast.fighter.id, "x": x, "y": x}
    return {"server": "table", "operation": "move_token", "arguments": arguments}
