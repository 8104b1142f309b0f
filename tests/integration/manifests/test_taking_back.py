"""An ordinary MCP server behind a manifest: what its calls do is read back, and taken back (issue's rows J4, J8 to J11, G8)."""

from __future__ import annotations

import json

import pytest

from takeback.errors import Problem
from takeback.messages.entry import ResolutionRequest
from tests.integration.manifest_lab import ManifestLab
from tests.integration.reversals_lab import OWNER, outcomes
from tests.servers_lab.pantry import Pantry
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_overwritten_note_comes_back_once_and_a_second_undo_changes_nothing(
    lab: ManifestLab, pantry: Pantry
) -> None:
    """G8, J8: call, undo, undo again."""
    entry = await lab.call("write_note", path="/a", text="rubbish")
    said = await lab.entry(entry)
    assert said.effect is not None
    assert said.effect.before is not None
    assert said.effect.before.fields == {"text": "alpha"}
    assert [(c.field, c.old, c.new) for c in said.effect.changes] == [("text", "alpha", "rubbish")]
    assert said.undo.kind == "compensate"
    assert said.undo.undo_by is not None
    assert await lab.back(entry) == ["reverted"]
    assert pantry.notes["/a"] == "alpha"
    writes = len(pantry.writes)
    assert await lab.back(entry) == ["already_reverted"]
    assert len(pantry.writes) == writes


async def test_a_taking_back_can_be_taken_back_where_the_ways_lead_forth_again(
    lab: ManifestLab, pantry: Pantry
) -> None:
    """S12."""
    entry = await lab.call("write_note", path="/a", text="better")
    assert await lab.back(entry) == ["reverted"]
    reversal = (await lab.entry(entry)).reverted_by
    assert reversal is not None
    assert await lab.back(reversal) == ["reverted"]
    assert pantry.notes["/a"] == "better"
    assert (await lab.entry(entry)).status == "committed"
    assert await lab.back(entry) == ["reverted"]
    assert pantry.notes["/a"] == "alpha"


async def test_what_somebody_else_wrote_in_between_is_a_conflict_and_survives(lab: ManifestLab, pantry: Pantry) -> None:
    """G8."""
    entry = await lab.call("write_note", path="/a", text="rubbish")
    pantry.notes["/a"] = "by hand"
    assert await lab.back(entry) == ["conflict"]
    assert pantry.notes["/a"] == "by hand"


async def test_the_state_before_is_in_the_journal_before_the_tool_runs(lab: ManifestLab, pantry: Pantry) -> None:
    """J2."""
    entry = await lab.call("move_note", source="/a", destination="/c")
    rows = await lab.recorder.pool.fetch(
        "select convert_from(body, 'UTF8')::jsonb as body from records where body is not null and type = 'entry.intended'"
    )
    bodies = [json.loads(row["body"])["entry"] for row in rows]
    intended = next(body for body in bodies if body["id"] == entry)
    assert intended["snapshot"]["fields"] == {"text": "alpha"}
    assert intended["snapshot"]["others"][0]["exists"] is False


async def test_an_edit_and_two_moves_of_a_note_come_back_in_one_plan(lab: ManifestLab, pantry: Pantry) -> None:
    """S11: no conflict with each other."""
    edit = await lab.call("write_note", path="/a", text="edited")
    first = await lab.call("move_note", source="/a", destination="/c")
    second = await lab.call("move_note", source="/c", destination="/d")
    assert await lab.back(second, first, edit) == ["reverted", "reverted", "reverted"]
    assert pantry.notes == {"/a": "alpha", "/b": "beta"}


async def test_a_new_note_is_moved_away_and_what_stays_was_said_before(lab: ManifestLab, pantry: Pantry) -> None:
    """J8: partial, with its losses."""
    entry = await lab.call("write_note", path="/new/./x", text="draft")
    said = await lab.entry(entry)
    assert said.effect is not None
    assert said.effect.resource == "pantry://note//new/x"
    assert "Not given back: a copy of the new note stays in /trash" in said.undo.side_effects
    assert await lab.back(entry) == ["reverted"]
    assert "/new/x" not in pantry.notes
    (receipt,) = await lab.receipts(entry)
    assert receipt["sideEffects"] == ["/new/x is moved to /trash"]


async def test_an_error_in_prose_is_a_failure_and_a_dry_run_is_a_read(lab: ManifestLab, pantry: Pantry) -> None:
    """J2: whatever isError says; the effect is chosen by an argument."""
    with pytest.raises(Problem) as failed:
        await lab.ask("write_note", path="/a", text="full")
    assert (failed.value.status, failed.value.slug) == (502, "tool-failed")
    answer = await lab.ask("write_note", path="/a", text="x", dryRun=True)
    assert answer.document["entry"]["kind"] == "read"
    assert pantry.writes == []


async def test_a_server_that_says_it_wrote_and_did_not_has_no_effect_to_take_back(
    lab: ManifestLab, pantry: Pantry
) -> None:
    """No effect is an outcome: the record is read back."""
    pantry.lies = True
    entry = await lab.call("write_note", path="/a", text="never")
    said = await lab.entry(entry)
    assert said.undo.why == "it changed nothing"
    writes = len(pantry.writes)
    assert await lab.back(entry) == ["reverted"]
    assert len(pantry.writes) == writes


async def test_an_undo_that_the_server_only_says_it_did_is_unverified(lab: ManifestLab, pantry: Pantry) -> None:
    """S8."""
    entry = await lab.call("write_note", path="/a", text="rubbish")
    pantry.lies = True
    assert await lab.back(entry) == ["unverified"]


async def test_of_a_batch_only_what_was_really_made_is_taken_back(lab: ManifestLab, pantry: Pantry) -> None:
    """A fate for each element: an existing one was skipped without a word, and stays."""
    entry = await lab.call("add_tasks", titles=["task 92", "fresh", "fresher"])
    said = await lab.entry(entry)
    assert [effect.resource for effect in said.effects] == ["pantry://titled/fresh", "pantry://titled/fresher"]
    assert await lab.back(entry) == ["reverted"]
    assert sorted(task["title"] for task in pantry.tasks.values()) == [f"task {n}" for n in range(91, 96)]


async def test_a_key_from_the_result_and_a_record_behind_several_pages(lab: ManifestLab, pantry: Pantry) -> None:
    """J10: the record that was made is named by the answer."""
    entry = await lab.call("add_task", title="call mum")
    said = await lab.entry(entry)
    assert said.effect is not None
    assert said.effect.resource in {f"pantry://task/{number}" for number in pantry.tasks}
    assert said.effect.before is None
    assert await lab.back(entry) == ["reverted"]
    assert "call mum" not in {task["title"] for task in pantry.tasks.values()}


async def test_a_delete_comes_back_with_its_links_under_another_number_that_later_steps_use(
    lab: ManifestLab, pantry: Pantry
) -> None:
    """S9: ids that change are mapped for later steps."""
    done = await lab.call("finish_task", id="t95")
    gone = await lab.call("remove_task", id="t95")
    said = await lab.entry(gone)
    assert {effect.resource for effect in said.effects} == {
        "pantry://task/t95", "pantry://link/t95/t92", "pantry://link/t93/t95",
    }  # fmt: skip
    assert await lab.back(gone, done) == ["reverted", "reverted"]
    made = next(number for number, task in pantry.tasks.items() if task["title"] == "task 95")
    assert made != "t95"
    assert pantry.tasks[made] == {"id": made, "title": "task 95", "done": False}
    assert sorted(pantry.links) == sorted([(made, "t92"), ("t93", made)])


async def test_amounts_are_taken_back_by_difference_beside_others_changes(lab: ManifestLab, pantry: Pantry) -> None:
    """Relative compensation: three back, not "set to ten"."""
    entry = await lab.call("take", item="flour", count=3)
    pantry.stock["flour"] += 40
    assert await lab.back(entry) == ["reverted"]
    assert pantry.stock["flour"] == 50


async def test_an_amount_that_did_not_move_as_it_should_is_in_doubt(lab: ManifestLab, pantry: Pantry) -> None:
    """S8: the version of the record cannot show it."""
    entry = await lab.call("take", item="flour", count=3)
    pantry.lies = True
    assert await lab.back(entry) == ["in_doubt"]


async def test_single_fields_come_back_beside_somebody_elses_edit(lab: ManifestLab, pantry: Pantry) -> None:
    """Field-level conflict (G8)."""
    entry = await lab.call("update_task", id="t91", title="wrong", done=True)
    pantry.tasks["t91"]["done"] = False
    plan = await lab.propose(entry)
    await lab.approve(plan, fields={entry: ["title"]})
    record = await lab.record(plan)
    assert record["receipts"][0]["outcome"] == "reverted"
    assert pantry.tasks["t91"] == {"id": "t91", "title": "task 91", "done": False}


async def test_what_cannot_be_taken_back_asks_and_says_why_before(lab: ManifestLab, pantry: Pantry) -> None:
    """J4, J8."""
    answer = await lab.ask("tell", text="hello")
    assert answer.status == 202
    assert answer.document["entry"]["undo"]["why"] == "what was told is told"
    answer = await lab.ask("move_note", source="/a", destination="/b")
    assert answer.status == 202
    assert answer.document["entry"]["undo"]["why"] == "its manifest describes no way back from this state"
    pantry.notes["/a"] = "alph\ufffd"
    answer = await lab.ask("write_note", path="/a", text="x")
    assert answer.status == 202
    assert "no UTF-8" in answer.document["entry"]["undo"]["why"]
    assert pantry.writes == []


async def test_a_doubtful_undo_is_never_sent_again_and_the_records_say_what_became_of_it(
    lab: ManifestLab, pantry: Pantry
) -> None:
    """G9, J7: an ordinary server keeps no answers."""
    entry = await lab.call("write_note", path="/a", text="rubbish")
    pantry.lose = "done"
    plan = await lab.propose(entry)
    with lab.impatient():
        await lab.approve(plan)
        await eventually(lambda: _settled(lab, entry))
    assert pantry.notes["/a"] == "alpha"
    assert pantry.writes == ["write_note", "write_note"]
    assert (await lab.entry(entry)).status == "reverted"


async def test_an_undo_that_was_lost_on_its_way_stays_in_doubt_until_a_person_settles_it(
    lab: ManifestLab, pantry: Pantry
) -> None:
    """J7: nothing proves that it will not arrive, so it is not sent again."""
    entry = await lab.call("write_note", path="/b", text="rubbish")
    pantry.lose = "not done"
    plan = await lab.propose(entry)
    with lab.impatient():
        await lab.approve(plan)
        assert outcomes(await lab.record(plan)) == {entry: "in_doubt"}
    pantry.lose = None
    doubtful = await lab.recorder.pool.fetchval("select id from entries where reverts = $1", entry)
    assert await lab.recorder.reversing.settling.settle(doubtful) is None
    assert pantry.writes == ["write_note"]
    stored = await lab.stored(doubtful)
    await lab.recorder.reversing.settling.resolve(
        stored, OWNER, ResolutionRequest(outcome="did-not-happen", reason="looked"), "owner"
    )
    assert (await lab.entry(entry)).status == "committed"
    assert await lab.back(entry) == ["reverted"]


async def test_a_call_whose_answer_was_lost_is_settled_by_its_records_and_can_be_taken_back(
    lab: ManifestLab, pantry: Pantry
) -> None:
    """J7: with the state before from the journal."""
    pantry.lose = "done"
    with lab.impatient(), pytest.raises(Problem) as doubt:
        await lab.ask("write_note", path="/a", text="rubbish")
    assert doubt.value.slug == "in-doubt"
    await eventually(lambda: pantry.writes)
    pantry.lose = None
    entry = doubt.value.extra["entry"]["id"]

    assert await lab.recorder.calls.doubts.settle_one(entry)
    assert (await lab.entry(entry)).undo.kind == "compensate"
    assert await lab.back(entry) == ["reverted"]
    assert pantry.notes["/a"] == "alpha"


async def _settled(lab: ManifestLab, entry: str) -> bool:
    return (await lab.entry(entry)).status == "reverted"
