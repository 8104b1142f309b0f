"""The planner at its doors: plans, decisions, one-call undo, graph, rebuild."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from planner.decisions import Decisions
from planner.planning import Planning
from planner.projection import apply, forget
from planner.rebuild import rebuild
from planner.store import Store
from planner.tables import PROJECTION
from planner.waiting import Waiting
from takeback.inbox import Inbox
from takeback.messages.plan import Plan
from takeback.rpc import Rpc
from tests.integration.planner_lab import CAMPAIGN, PlannerLab, planner_lab

PLANS = f"/v1/campaigns/{CAMPAIGN}/plans"


@pytest.fixture
async def lab(postgres_url: str, nats_url: str, tmp_path: Path) -> AsyncIterator[PlannerLab]:
    async with planner_lab(postgres_url, nats_url, tmp_path / "keys") as lab:
        yield lab


def approval(plan: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"decision": "approve", "digest": plan["digest"], "reason": "wrong creature", **more}


def undo_of(interaction: str) -> str:
    return f"/v1/campaigns/{CAMPAIGN}/interactions/{interaction}/undo"


async def test_a_plan_is_built_on_everything_acknowledged_before_the_request(lab: PlannerLab) -> None:
    """Read your own writes: nothing of it was published, and the plan holds it."""
    lab.journal.publishes = False
    hit = await lab.committed()
    plan = await lab.plan("paladin", hit)
    assert [step["entry"] for step in plan["steps"]] == [hit["id"]]
    assert plan["steps"][0]["observedVersion"] == "2"
    assert (await lab.get("rogue", f"/v1/plans/{plan['id']}")).json() == plan


async def test_strangers_and_members_of_elsewhere_get_the_same_404(lab: PlannerLab) -> None:
    """G7: the same bytes as for what does not exist."""
    hit = await lab.committed()
    plan = await lab.plan("paladin", hit)
    answers = [
        await lab.get("stranger", f"/v1/plans/{plan['id']}"),
        await lab.get("stranger", "/v1/plans/pln_nothing"),
        await lab.post("stranger", PLANS, {"entries": [hit["id"]]}),
        await lab.post("gm", PLANS, {"entries": ["ent_of_another_campaign"]}),
        await lab.post("gm", "/v1/campaigns/cmp_other/plans", {"entries": [hit["id"]]}),
        await lab.get("stranger", "/v1/runs/run_paladin/graph"),
        await lab.post("stranger", undo_of(hit["interaction"])),
        await lab.post("stranger", f"/v1/plans/{plan['id']}/decision", approval(plan)),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1


async def test_an_agent_may_propose_and_decides_nothing(lab: PlannerLab) -> None:
    """P10, S14."""
    hit = await lab.committed()
    made = await lab.post("dm-agent", PLANS, {"entries": [hit["id"]]}, kind="agent")
    assert made.status_code == 201
    decided = await lab.post("dm-agent", f"/v1/plans/{made.json()['id']}/decision", approval(made.json()), kind="agent")
    assert (decided.status_code, decided.json()["title"]) == (403, "human required")
    undone = await lab.post("dm-agent", undo_of(hit["interaction"]), kind="agent")
    assert undone.status_code == 403


async def test_an_approved_plan_is_answered_when_its_reversal_has_ended(lab: PlannerLab) -> None:
    """G6: 200 in time, woken by the last event; the record tells what was reverted."""
    hit = await lab.committed()
    plan = await lab.plan("paladin", hit)
    decided = await lab.post("paladin", f"/v1/plans/{plan['id']}/decision?wait=10", approval(plan))
    assert decided.status_code == 200, decided.text
    assert decided.json()["plan"]["status"] == "completed"
    record = (await lab.get("rogue", f"/v1/plans/{plan['id']}/record")).json()
    assert [receipt["outcome"] for receipt in record["receipts"]] == ["reverted"]
    again = await lab.post("paladin", f"/v1/plans/{plan['id']}/decision?wait=10", approval(plan))
    assert (again.status_code, again.json()["record"]) == (200, record)


async def test_without_waiting_the_decision_is_accepted_and_the_plan_tells_the_rest(lab: PlannerLab) -> None:
    """A decision is answered only when it is in the journal; 202 while the reversal runs."""
    lab.journal.reverses = asyncio.Event()
    hit = await lab.committed()
    plan = await lab.plan("paladin", hit)
    decided = await lab.post("paladin", f"/v1/plans/{plan['id']}/decision", approval(plan))
    assert (decided.status_code, decided.json()["plan"]["status"]) == (202, "approved")
    assert [one["type"] for one in lab.journal.appended] == ["plan.proposed", "plan.decided"]
    lab.journal.reverses.set()
    waited = await lab.post("paladin", f"/v1/plans/{plan['id']}/decision?wait=10", approval(plan))
    assert waited.json()["plan"]["status"] == "completed"


async def test_an_end_that_came_before_anybody_waited_for_it_is_not_waited_for(lab: PlannerLab) -> None:
    """G6: another planner takes the event, and this one was told of the end when nobody here waited."""
    lab.journal.reverses = asyncio.Event()
    plan = await lab.plan("paladin", await lab.committed())
    await lab.post("paladin", f"/v1/plans/{plan['id']}/decision", approval(plan))
    planner, waiting = lab.planners[0], Waiting()
    rpc = Rpc(planner._client)
    inbox = Inbox(planner._pool, rpc, "planner", apply, forget)
    decisions = Decisions(Planning(Store(planner._pool), inbox, rpc), inbox, rpc, waiting)
    lab.journal.publishes = False
    lab.journal.reverses.set()
    await asyncio.gather(*lab.journal._tasks)
    async with asyncio.timeout(10):
        assert (await decisions.wait(Plan.model_validate(plan), 30)).ended


async def test_another_digest_is_refused(lab: PlannerLab) -> None:
    """G6."""
    plan = await lab.plan("paladin", await lab.committed())
    answer = await lab.post("paladin", f"/v1/plans/{plan['id']}/decision", approval(plan) | {"digest": "sha256:0"})
    assert (answer.status_code, answer.json()["title"]) == (409, "digest mismatch")


async def test_a_plan_that_the_world_has_moved_past_is_planned_anew(lab: PlannerLab) -> None:
    """G6: the refusal names a fresh plan, which shows the conflict; the old one is stale."""
    hit = await lab.committed()
    plan = await lab.plan("paladin", hit)
    lab.journal.records[hit["effect"]["resource"]] = {"exists": True, "version": "3", "fields": {"hp": 7}}
    answer = await lab.post("paladin", f"/v1/plans/{plan['id']}/decision", approval(plan))
    assert (answer.status_code, answer.json()["title"]) == (409, "plan stale")
    fresh = (await lab.get("paladin", answer.json()["href"])).json()
    assert fresh["steps"][0]["conflict"]["fields"] == [{"field": "hp", "was": 10, "wrote": 3, "now": 7}]
    assert (await lab.get("paladin", f"/v1/plans/{plan['id']}")).json()["status"] == "stale"
    assert [one["type"] for one in lab.journal.appended] == ["plan.proposed", "plan.proposed"]


async def test_a_rejected_plan_runs_nothing(lab: PlannerLab) -> None:
    """And another word on it comes too late."""
    plan = await lab.plan("paladin", await lab.committed())
    path = f"/v1/plans/{plan['id']}/decision"
    rejected = await lab.post("paladin", path, approval(plan) | {"decision": "reject"})
    assert (rejected.status_code, rejected.json()["plan"]["status"]) == (200, "rejected")
    late = await lab.post("paladin", path, approval(plan))
    assert (late.status_code, late.json()["title"]) == (409, "plan decided")


async def test_the_paladin_cannot_take_back_the_turn_of_the_rogue(lab: PlannerLab) -> None:
    """G7: 403, and the recorder is told so that it logs; the owner can."""
    hit = await lab.committed("rogue")
    plan = await lab.plan("paladin", hit)
    refused = await lab.post("paladin", f"/v1/plans/{plan['id']}/decision", approval(plan))
    assert (refused.status_code, refused.json()["title"]) == (403, "not authorised")
    assert (await lab.post("paladin", undo_of(hit["interaction"]))).status_code == 403
    assert [one["by"]["sub"] for one in lab.journal.refused] == ["paladin", "paladin"]
    decided = await lab.post("gm", f"/v1/plans/{plan['id']}/decision?wait=10", approval(plan))
    assert decided.json()["record"]["authority"] == "owner"


async def test_authority_is_asked_for_what_is_not_left_out(lab: PlannerLab) -> None:
    """G5, G7: a step of somebody else's may be left out."""
    mine, theirs = await lab.committed("paladin"), await lab.committed("rogue")
    plan = await lab.plan("paladin", mine, theirs)
    path = f"/v1/plans/{plan['id']}/decision?wait=10"
    assert (await lab.post("paladin", path, approval(plan))).status_code == 403
    decided = await lab.post("paladin", path, approval(plan, leaveOut=[theirs["id"]]))
    assert decided.status_code == 200, decided.text
    outcomes = {receipt["entry"]: receipt["outcome"] for receipt in decided.json()["record"]["receipts"]}
    assert outcomes == {mine["id"]: "reverted", theirs["id"]: "left_out"}


async def test_a_choice_about_what_is_no_step_is_refused(lab: PlannerLab) -> None:
    """G5: and so is a field that the call did not change."""
    hit = await lab.committed()
    plan = await lab.plan("paladin", hit)
    path = f"/v1/plans/{plan['id']}/decision"
    for wrong in (
        {"leaveOut": ["ent_x"]},
        {"override": ["ent_x"]},
        {"fields": {hit["id"]: ["mana"]}},
        {"leaveOut": [hit["id"]], "override": [hit["id"]]},
    ):
        assert (await lab.post("paladin", path, approval(plan, **wrong))).status_code == 422


async def test_one_call_takes_the_latest_turn_back(lab: PlannerLab) -> None:
    """U1, G9: the second click hears already_reverted, of the same turn."""
    await lab.committed(number=1)
    newest = await lab.committed(number=2)
    first = await lab.post("paladin", undo_of("latest"), {"reason": "misheard", "category": "misread"})
    assert first.status_code == 200, first.text
    assert first.json()["reverted"] is True
    assert [receipt["entry"] for receipt in first.json()["record"]["receipts"]] == [newest["id"]]
    second = await lab.post("paladin", undo_of("latest"))
    assert (second.status_code, second.json()["reverted"], second.json()["skipReason"]) == (
        200,
        False,
        "already_reverted",
    )


async def test_where_no_call_named_a_turn_a_member_hears_what_to_do_and_a_stranger_nothing(lab: PlannerLab) -> None:
    """U1."""
    await lab.committed(interaction=None)
    answer = await lab.post("paladin", undo_of("latest"))
    assert (answer.status_code, answer.json()["type"].rsplit("/", 1)[-1]) == (409, "no-turn")
    assert "by a plan" in answer.json()["detail"]
    assert (await lab.post("stranger", undo_of("latest"))).status_code == 404


async def test_one_call_goes_on_from_what_is_true_when_a_record_moves_between_its_plan_and_its_decision(
    lab: PlannerLab,
) -> None:
    """G6, U1: the plan that was overtaken runs nothing; a fresh one takes the turn back, once."""
    hit = await lab.committed()
    lab.journal.moves = 1
    answer = await lab.post("paladin", undo_of("latest"))
    assert (answer.status_code, answer.json()["reverted"]) == (200, True), answer.text
    assert [receipt["entry"] for receipt in answer.json()["record"]["receipts"]] == [hit["id"]]
    assert [one["type"] for one in lab.journal.appended].count("plan.decided") == 1


async def test_a_turn_without_a_committed_call_is_not_committed(lab: PlannerLab) -> None:
    """G9."""
    failed = await lab.committed(status="failed")
    answer = await lab.post("paladin", undo_of(failed["interaction"]))
    assert (answer.status_code, answer.json()["skipReason"]) == (200, "not_committed")


async def test_one_call_hands_the_plan_over_when_a_person_must_choose(lab: PlannerLab) -> None:
    """U1: a later turn built on it; nothing is decided."""
    first = await lab.committed(number=1)
    await lab.committed(number=2, host={"dependsOn": [first["id"]], "replacesDefault": True})
    answer = await lab.post("paladin", undo_of(first["interaction"]))
    assert answer.status_code == 409
    assert len(answer.json()["plan"]["steps"]) == 2
    assert [one["type"] for one in lab.journal.appended] == ["plan.proposed"]


@pytest.mark.parametrize("status", ["reverting", "pending"])
async def test_what_is_unsettled_is_handed_over_and_nothing_is_dispatched(lab: PlannerLab, status: str) -> None:
    """G8, G9: a reversal that is in doubt or unverified, a call that still runs: unresolved, not irreversible."""
    hit = await lab.committed(number=1)
    entry = hit | {"status": status} | ({"id": "ent_running", "label": "e2"} if status == "pending" else {})
    lab.journal.unsettled.append(entry)
    answer = await lab.post("paladin", undo_of(hit["interaction"]))
    assert answer.status_code == 409
    assert [item["entry"] for item in answer.json()["plan"]["unresolved"]] == [entry["id"]]
    assert [one["type"] for one in lab.journal.appended] == ["plan.proposed"]


async def test_fifty_clicks_give_one_reversal(postgres_url: str, nats_url: str, tmp_path: Path) -> None:
    """G9: on two planners; 49 wait and hear already_reverted."""
    async with planner_lab(postgres_url, nats_url, tmp_path / "keys", planners=2) as lab:
        hit = await lab.committed()
        clicks = [lab.post("paladin", undo_of(hit["interaction"]), planner=n % 2) for n in range(50)]
        answers = await asyncio.gather(*clicks)
        assert {answer.status_code for answer in answers} == {200}
        assert [answer.json()["reverted"] for answer in answers].count(True) == 1
        assert [answer.json().get("skipReason") for answer in answers].count("already_reverted") == 49


async def test_a_person_confirms_a_link_and_it_is_recorded(lab: PlannerLab) -> None:
    """G2."""
    first = await lab.committed(number=1)
    second = await lab.committed(number=2, host={})
    graph = (await lab.get("rogue", "/v1/runs/run_paladin/graph")).json()
    assert [entry["id"] for entry in graph["entries"]] == [first["id"], second["id"]]
    (link,) = graph["links"]
    assert (link["entry"], link["dependsOn"], link["source"]) == (second["id"], first["id"], "default")
    path = f"/v1/links/{link['id']}/confirm"
    assert (await lab.post("dm-agent", path, kind="agent")).status_code == 403
    confirmed = (await lab.post("rogue", path)).json()
    assert (confirmed["source"], confirmed["confirmedBy"]) == ("confirmed", "rogue")
    assert (await lab.post("paladin", path)).json() == confirmed


async def test_the_same_idempotency_key_gives_the_same_plan(lab: PlannerLab) -> None:
    """Contract: same key and body the same answer, another body 422."""
    hit, other = await lab.committed(number=1), await lab.committed(number=2)
    headers = {"Idempotency-Key": "k1"}
    first = await lab.post("paladin", PLANS, {"entries": [hit["id"]]}, headers=headers)
    again = await lab.post("paladin", PLANS, {"entries": [hit["id"]]}, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert (await lab.post("paladin", PLANS, {"entries": [other["id"]]}, headers=headers)).status_code == 422


async def test_the_same_key_from_many_at_once_gives_one_plan_and_one_undoing(
    postgres_url: str, nats_url: str, tmp_path: Path
) -> None:
    """Contract, G9: on two planners, everybody hears what the first one made; who asked for something else is told so."""
    async with planner_lab(postgres_url, nats_url, tmp_path / "keys", planners=2) as lab:
        hit, other = await lab.committed(number=1), await lab.committed(number=2)
        wanted = [{"entries": [(hit if number % 3 else other)["id"]]} for number in range(12)]
        headers = {"Idempotency-Key": "k1"}
        plans = await asyncio.gather(
            *(lab.post("paladin", PLANS, body, headers=headers, planner=n % 2) for n, body in enumerate(wanted))
        )
        made = [answer for answer in plans if answer.status_code == 201]
        assert made and len({answer.content for answer in made}) == 1
        for body, answer in zip(wanted, plans, strict=True):
            fits = body["entries"] == made[0].json()["targets"]
            assert answer.status_code == (201 if fits else 422)

        undone = await asyncio.gather(
            *(lab.post("paladin", undo_of("latest"), headers=headers, planner=n % 2) for n in range(12))
        )
        assert {(answer.status_code, answer.json()["reverted"]) for answer in undone} == {(200, True)}
        assert len({answer.json()["plan"]["id"] for answer in undone}) == 1


async def test_a_rebuild_gives_the_same_graph_links_and_plans_byte_for_byte(lab: PlannerLab, postgres_url: str) -> None:
    """Everything comes from the journal, and nothing is appended or announced again."""
    first = await lab.committed(number=1)
    await lab.committed(number=2, host={"uses": [first["effect"]["resource"]]})
    await lab.committed("rogue")
    await lab.post("paladin", undo_of("turn-paladin-2"))
    plan = await lab.plan("gm", first)
    graph = (await lab.get("gm", "/v1/runs/run_paladin/graph")).json()
    await lab.post("gm", f"/v1/links/{graph['links'][0]['id']}/confirm")
    shown = [(await lab.get("gm", path)).content for path in ("/v1/runs/run_paladin/graph", f"/v1/plans/{plan['id']}")]
    before, appended = await dumped(postgres_url), len(lab.journal.appended)
    told = await rebuild(lab.environ)
    assert told == "planner: 3 entries and 2 plans, read again from 3 streams"
    assert await dumped(postgres_url) == before
    assert len(lab.journal.appended) == appended
    assert shown == [
        (await lab.get("gm", path)).content for path in ("/v1/runs/run_paladin/graph", f"/v1/plans/{plan['id']}")
    ]


async def test_without_a_recorder_the_planner_says_so_and_changes_nothing(lab: PlannerLab) -> None:
    """503, safe to try again."""
    hit = await lab.committed()
    await lab.journal._client.close()
    answer = await lab.post("paladin", PLANS, {"entries": [hit["id"]]})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


async def dumped(postgres_url: str) -> dict[str, list[tuple[Any, ...]]]:
    connection = await asyncpg.connect(postgres_url)
    try:
        return {
            table: sorted(tuple(map(repr, row)) for row in await connection.fetch(f"select * from planner.{table}"))
            for table in (*PROJECTION, "positions")
        }
    finally:
        await connection.close()
