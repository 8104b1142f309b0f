"""A call that changes several records is held back when any of them is being taken back, or is in doubt (J7, J19)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from recorder.journal.fsck import fsck
from takeback.errors import Problem
from takeback.messages.campaign import AgentRequest, CampaignRequest, McpHttp, RunRequest
from takeback.messages.entry import ApprovalDecision
from tests.integration.manifest_lab import ManifestLab
from tests.integration.reversals_lab import AGENT, OWNER, outcomes
from tests.servers_lab.pantry import MANIFEST, Pantry
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def lab(running: tuple[ManifestLab, Pantry, str]) -> ManifestLab:
    """A campaign in which nothing waits for anything else, so that only the records decide."""
    lab, _, url = running
    opened = await lab.recorder.campaigns.open(OWNER, CampaignRequest(name="Several", serialize="none"))
    lab.campaign = opened["id"]
    await lab.put(McpHttp(transport="mcp", url=url, manifest=MANIFEST))
    await lab.recorder.campaigns.put_agent(lab.campaign, OWNER, AGENT.sub, AgentRequest(memory="yes"))
    wanted = RunRequest(agent="bot", model="m1", principal=OWNER.sub)
    lab.run = (await lab.recorder.runs.open(lab.campaign, AGENT, wanted))["id"]
    await lab.allow("move_note", "add_tasks")
    return lab


async def test_a_move_onto_a_record_that_is_being_taken_back_is_told_so(lab: ManifestLab, pantry: Pantry) -> None:
    """Contract: 409 reversal-running, whichever of its records it is; a move between others is free."""
    entry = await lab.call("write_note", path="/b", text="rubbish")
    others, pantry.go_on = pantry.go_on, asyncio.Event()
    pantry.lose = "not done"
    plan = await lab.propose(entry)
    await lab.approve(plan)

    async def reverting() -> bool:
        return (await lab.entry(entry)).status == "reverting"

    await eventually(reverting)
    with pytest.raises(Problem) as held:
        await lab.ask("move_note", source="/a", destination="/b")
    assert held.value.slug == "reversal-running"
    assert (await lab.ask("move_note", source="/a", destination="/c")).status == 200
    assert pantry.notes == {"/b": "rubbish", "/c": "alpha"}
    pantry.go_on.set()
    assert outcomes(await lab.record(plan)) == {entry: "reverted"}
    pantry.go_on = others


async def test_a_move_onto_a_record_in_doubt_is_asked_and_goes_on_once_approved(
    lab: ManifestLab, pantry: Pantry
) -> None:
    """J7: nobody knows what is at its destination; a person who says go on is told of the doubt."""
    doubtful = await _lost(lab, pantry, "not done", "write_note", path="/d", text="x")
    asked = await lab.ask("move_note", source="/a", destination="/d")
    assert asked.status == 202
    approval = await lab.recorder.calls.approvals.get(asked.document["approval"]["id"], OWNER)
    assert approval["why"] == [f"the outcome of {doubtful} is not known"]
    assert (await lab.ask("move_note", source="/b", destination="/e")).status == 200

    await lab.recorder.calls.approvals.decide(approval["id"], OWNER, ApprovalDecision(decision="approve"))
    continuations = lab.recorder.calls.continuations
    await continuations.sweep()
    await continuations.drain()
    assert (await lab.entry(asked.document["entry"]["id"])).status == "committed"
    assert pantry.notes == {"/d": "alpha", "/e": "beta"}
    assert await _differences(lab) == []


async def test_a_person_who_was_asked_anyway_hears_of_a_doubt_over_another_record(
    lab: ManifestLab, pantry: Pantry
) -> None:
    """J7: the policy asks before anything was read."""
    await lab.allow()
    doubtful = await _lost(lab, pantry, "not done", "write_note", path="/d", text="x")
    asked = await lab.ask("move_note", source="/a", destination="/d")
    approval = await lab.recorder.calls.approvals.get(asked.document["approval"]["id"], OWNER)
    assert f"the outcome of {doubtful} is not known" in approval["why"]


@pytest.mark.parametrize("path", ["/a", "/c"])
async def test_a_move_in_doubt_holds_back_writes_to_both_its_records(
    lab: ManifestLab, pantry: Pantry, path: str
) -> None:
    """J7: the doubt is over every record that the call was to change."""
    doubtful = await _lost(lab, pantry, "not moved", "move_note", source="/a", destination="/c")
    asked = await lab.ask("write_note", path=path, text="x")
    assert asked.status == 202, asked.document
    assert doubtful in asked.document["why"]
    assert (await lab.ask("write_note", path="/b", text="x")).status == 200
    assert await _differences(lab) == []


async def _lost(lab: ManifestLab, pantry: Pantry, how: str, operation: str, **arguments: Any) -> str:
    """A call that never arrived, as far as anybody can tell; its entry, in doubt."""
    pantry.lose = how
    with lab.impatient(), pytest.raises(Problem) as doubt:
        await lab.ask(operation, **arguments)
    pantry.lose = None
    assert doubt.value.slug == "in-doubt"
    return str(doubt.value.extra["entry"]["id"])


async def _differences(lab: ManifestLab) -> list[str]:
    return [str(difference) async for difference in fsck(lab.recorder.pool)]
