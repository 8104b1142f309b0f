"""Who is in one campaign finds nothing of another, at any door; who is in both finds nothing across them (G7)."""

from typing import Any

import httpx
import pytest
import pytest_asyncio

from examples.agents.narrator import Narrator
from examples.client import Answer, Caller
from examples.demo.cast import game_cast
from examples.demo.stage import Stage
from examples.table.example import AGENT, OWNER
from takeback.example import Installation
from takeback.ids import new_id
from takeback.messages.doors import DOORS, Door

STRANGER, BOTH = "teo", "dana"
"""Members of the company alone, and its owner, who sits at the game table too."""

NO_DIGEST = "sha256:" + "0" * 64
BODIES: dict[str, Any] = {
    "MemberRequest": {"role": "member"},
    "Policy": {},
    "AgentRequest": {"memory": "no"},
    "CalendarRequest": {"zone": "Europe/Berlin", "weekly": {"mon": [["09:00", "17:00"]]}},
    "ServerRequest": {"transport": "nats", "subject": "tools.table"},
    "RunRequest": {"agent": AGENT, "model": "m", "principal": OWNER},
    "CallRequest": {"server": "table", "operation": "advance_turn", "arguments": {}},
    "PreviewRequest": {"server": "table", "operation": "advance_turn", "arguments": {}},
    "ResolutionRequest": {"outcome": "happened", "reason": "I looked"},
    "ApprovalDecision": {"decision": "approve", "reason": ""},
    "PlanDecision": {"decision": "approve", "digest": NO_DIGEST, "reason": ""},
    "UndoRequest": {"reason": "x"},
    "AcknowledgementRequest": {},
    "BroadcastRequest": {"payload": "x"},
    "WebhookRequest": {"url": "https://hooks.example.org/takeback", "types": ["entry.committed"]},
}


class Things:
    """One of everything at the game table."""

    def __init__(self, ids: dict[str, str]) -> None:
        self.ids = ids
        self.nowhere = {name: new_id(value.split("_")[0]) for name, value in ids.items()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def things(installation: Installation) -> Things:
    async with Stage(installation) as stage:
        cast, campaign = game_cast(31), stage.campaign("game")
        await (await stage.game()).set_up(cast.scene)
        owner = await stage.seat(OWNER)
        await owner.put(f"/v1/campaigns/{campaign}/members/{BOTH}", {"role": "owner"})
        narrator = await Narrator.begin(await stage.seat(AGENT, "agent"), campaign, OWNER)
        entry = await narrator.move(cast.scene.adventure, cast.fighter.id, 1, 1)
        await narrator.move(cast.scene.adventure, cast.fighter.id, 2, 2)
        asked = await narrator.use(
            "table/move_token", corrects=entry["id"], adventure=cast.scene.adventure, creature=cast.fighter.id, x=0, y=0
        )
        plan = await owner.plan(campaign, entries=[entry["id"]])
        graph = await owner.get(f"/v1/runs/{narrator.run}/graph")
        return Things(
            {
                "campaign": campaign,
                "run": narrator.run,
                "entry": entry["id"],
                "interaction": narrator.interaction,
                "plan": plan["id"],
                "approval": asked["approval"],
                "link": graph["links"][0]["id"],
            }
        )


def path_of(door: Door, ids: dict[str, str]) -> str:
    """The door's path; what has a name and no id (a member, a server) is called the same everywhere."""
    path = door.path
    for name, value in {"sub": OWNER, "name": "table", "delivery": "dlv_1", **ids}.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def body_of(door: Door, ids: dict[str, str]) -> Any:
    name = "ServerRequest" if door.path.endswith("/servers/{name}") else getattr(door.request, "__name__", "")
    return {"entries": [ids["entry"]]} if name == "PlanRequest" else BODIES.get(name, {})


async def ask(caller: Caller, method: str, path: str, body: Any) -> tuple[int, bytes]:
    answer: httpx.Response = await caller._http.request(method, path, json=body if method in ("POST", "PUT") else None)
    return answer.status_code, answer.content


@pytest.mark.parametrize(
    "door",
    [door for door in DOORS if "{" in door.path and 101 not in door.answers],
    ids=lambda d: f"{d.method} {d.path}",
)
async def test_a_stranger_gets_the_same_404_as_for_what_does_not_exist(
    stage: Stage, things: Things, door: Door
) -> None:
    """G7: entries, runs, plans, approvals, review, graph, record and every other door: byte for byte."""
    stranger = await stage.seat(STRANGER)
    there = await ask(stranger, door.method, path_of(door, things.ids), body_of(door, things.ids))
    nowhere = await ask(stranger, door.method, path_of(door, things.nowhere), body_of(door, things.nowhere))
    assert there == nowhere
    assert there[0] == 404, there


@pytest.mark.parametrize("target", ["entries", "run", "interaction"])
async def test_a_member_of_both_cannot_plan_one_campaigns_things_in_the_other(
    stage: Stage, things: Things, target: str
) -> None:
    """G7: 404 across them, the same bytes, even for an owner of both."""
    both, path = await stage.seat(BOTH), f"/v1/campaigns/{stage.campaign('deal')}/plans"

    def body(ids: dict[str, str]) -> Answer:
        return {"entries": [ids["entry"]]} if target == "entries" else {target: ids[target]}

    there = await ask(both, "POST", path, body(things.ids))
    assert there == await ask(both, "POST", path, body(things.nowhere))
    assert there[0] == 404
    assert (await ask(both, "POST", path.replace(stage.campaign("deal"), things.ids["campaign"]), body(things.ids)))[
        0
    ] == 201


async def test_a_member_of_both_cannot_take_a_turn_back_across_them(stage: Stage, things: Things) -> None:
    """G7: the one-call undo."""
    both, deal = await stage.seat(BOTH), stage.campaign("deal")
    there, nowhere = [
        await ask(both, "POST", f"/v1/campaigns/{deal}/interactions/{ids['interaction']}/undo", {})
        for ids in (things.ids, things.nowhere)
    ]
    assert there == nowhere
    assert there[0] == 404


@pytest.mark.parametrize("how", ["remedies", "corrects"])
async def test_a_call_cannot_repair_another_campaigns_entry(stage: Stage, things: Things, how: str) -> None:
    """G7, J14: what is named across campaigns is as unknown as what does not exist; nothing is written."""
    both, deal = await stage.seat(BOTH), stage.campaign("deal")
    run = await both.open_run(deal, BOTH, model="m", principal=BOTH)
    answers = []
    for ids in (things.ids, things.nowhere):
        body = {"server": "crm", "operation": "get_deal", "arguments": {"dealId": "D-1"}, how: ids["entry"]}
        status, said = await ask(both, "POST", f"/v1/runs/{run}/calls", body)
        answers.append((status, said.replace(ids["entry"].encode(), b"it")))
    assert answers[0] == answers[1]
    assert answers[0][0] in (404, 422)
    assert await both.entries(run) == []


async def test_a_call_may_name_anything_as_what_it_depends_on_and_learns_nothing(stage: Stage, things: Things) -> None:
    """G7, G1: a host's link leads nowhere across campaigns, as to what does not exist, and the entry says no more."""
    both, deal = await stage.seat(BOTH), stage.campaign("deal")
    run = await both.open_run(deal, BOTH, model="m", principal=BOTH)
    said = []
    for ids in (things.ids, things.nowhere):
        body = {"server": "memory", "operation": "recall", "arguments": {"topic": "x"}, "dependsOn": [ids["entry"]]}
        entry = (await both.post(f"/v1/runs/{run}/calls", body))["entry"]
        said.append([(each["field"], each["reason"].replace(ids["entry"], "it")) for each in entry["unresolved"]])
    assert said[0] == said[1]
    own = {entry["id"] for entry in await both.entries(run)}
    assert {link["dependsOn"] for link in (await both.get(f"/v1/runs/{run}/graph"))["links"]} <= own
