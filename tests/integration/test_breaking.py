"""What nobody may lose: an edit that a teammate made in the application itself, between two calls of an agent."""

from __future__ import annotations

from tests.integration.test_planner_with_recorder import Desk, desk

__all__ = ["desk"]


async def _between_two_calls(desk: Desk, first: str, second: str) -> None:
    """The agent moves the deal, a teammate sets its amount in the CRM, the agent moves it again."""
    run = await desk.run()
    await desk.call(run, "update_deal", first, dealId="D-881", stage="lost")
    await desk.crm.execute("update deals set amount = 777 where id = 'D-881'")
    await desk.call(run, "update_deal", second, dealId="D-881", stage="open")


async def _deal(desk: Desk) -> tuple[str, str]:
    row = await desk.crm.fetchrow("select stage, amount::text from deals where id = 'D-881'")
    return (row["stage"], row["amount"])


async def test_a_turn_with_a_teammates_edit_in_the_middle_is_a_persons_choice(desk: Desk) -> None:
    """G8, S11: one call does nothing, a plan without an override goes back as far as the edit and no further."""
    await _between_two_calls(desk, "turn-1", "turn-1")
    answered = await desk.undo("turn-1")
    assert answered.status_code == 409, answered.text
    assert await _deal(desk) == ("open", "777.00")
    plan = answered.json()["plan"]
    last, first = plan["steps"]
    assert (last["conflict"], first["conflict"]) == (None, {"fields": []})
    told = next(item for item in plan["consequences"] if item["entry"] == first["entry"])
    assert told["ifOverridden"] == ["The record was changed since in other fields: what they hold may be lost."]
    await desk.decide(plan)
    assert await _deal(desk) == ("lost", "777.00")
    record = await desk.ok("GET", f"/v1/plans/{plan['id']}/record", sub="paul")
    assert [receipt["outcome"] for receipt in record["receipts"]] == ["reverted", "conflict"]


async def test_a_turn_before_a_teammates_edit_stays_after_the_turn_behind_it_went(desk: Desk) -> None:
    """G8, S6: what a reversal left is not what the earlier call left, for somebody wrote between the two."""
    await _between_two_calls(desk, "turn-1", "turn-2")
    assert (await desk.undo("turn-2")).status_code == 200
    assert await _deal(desk) == ("lost", "777.00")
    assert (await desk.undo("turn-1")).status_code == 409
    assert await _deal(desk) == ("lost", "777.00")


async def test_calls_that_nobody_wrote_between_still_go_back_in_one(desk: Desk) -> None:
    """S6, S11, S12: in one plan, one after the other, and after they were done again."""
    run = await desk.run()
    entries = []
    for turn, stage in (("turn-1", "lost"), ("turn-2", "open")):
        called = await desk.call(run, "update_deal", turn, dealId="D-881", stage=stage)
        entries.append(called["entry"]["id"])
    for turn in ("turn-2", "turn-1"):
        assert (await desk.undo(turn)).status_code == 200
    for entry in entries:
        undone = (await desk.ok("GET", f"/v1/entries/{entry}"))["revertedBy"]
        await desk.decide(await desk.plan(undone))
    assert await _deal(desk) == ("open", "1200.50")
    plan = await desk.plan(*entries)
    assert [step["conflict"] for step in plan["steps"]] == [None, None]
    await desk.decide(plan)
    assert await _deal(desk) == ("won", "1200.50")
