"""The SDK on a real PostgreSQL: what is taken back, and what is left as somebody else made it."""

import asyncio
from datetime import UTC, datetime

import pytest

from takeback.extension import UndoTemplate, read_undo_answer
from tests.integration.toolserver.conftest import DEAL, Crm

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_update_is_taken_back_and_says_so_with_its_own_effect(crm: Crm) -> None:
    """G8."""
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost", title="Sunk")
    before = declared["effect"]["before"]
    answer = await crm.undo(declared)
    assert answer["outcome"] == "reverted"
    assert answer["effect"]["version"] == before["version"]
    assert {c["field"]: c["new"] for c in answer["effect"]["changes"]} == {"stage": "won", "title": "Harbour"}
    row = await crm.row("select * from deals where id = 'D-881'")
    assert (row["stage"], row["title"], row["tags"][:4]) == ("won", "Harbour", '["a"')
    assert read_undo_answer(answer, UndoTemplate(), datetime.now(UTC)).unresolved == []


async def test_a_relative_change_is_taken_back(crm: Crm) -> None:
    declared = await crm.done("charge", "e1", accountId=1, amount=30)
    assert (await crm.undo(declared))["outcome"] == "reverted"
    assert await crm.value("select balance from accounts") == 100


async def test_a_created_record_is_taken_back_and_stands_again_after_the_redo(crm: Crm) -> None:
    """S12."""
    declared = await crm.done("create_deal", "e1", title="Pier")
    assert declared["effect"]["before"] is None
    taken = await crm.undo(declared)
    assert taken["outcome"] == "reverted" and taken["effect"]["version"] == "absent"
    assert await crm.value("select count(*) from deals") == 1
    assert (await crm.undo(taken))["outcome"] == "reverted"
    assert await crm.value("select title from deals where id <> 'D-881'") == "Pier"


async def test_a_deleted_record_is_brought_back_whole(crm: Crm) -> None:
    row = await crm.row("select * from deals")
    declared = await crm.done("delete_deal", "e1", dealId="D-881")
    assert declared["undo"]["ifVersion"] == declared["effect"]["version"] == "absent"
    assert (await crm.undo(declared))["outcome"] == "reverted"
    assert await crm.row("select * from deals") == row


async def test_a_record_that_comes_back_under_another_id_is_named(crm: Crm) -> None:
    note = "11111111-1111-1111-1111-111111111111"
    declared = await crm.done("delete_note", "e1", noteId=note)
    answer = await crm.undo(declared)
    made = await crm.value("select id::text from notes")
    assert answer["outcome"] == "reverted"
    assert answer["remaps"] == [{"from": f"crm://acme/note/{note}", "to": f"crm://acme/note/{made}"}]
    assert (await crm.undo(answer))["outcome"] == "reverted"
    assert await crm.value("select count(*) from notes") == 0


async def test_an_own_revert_removes_only_what_was_added(crm: Crm) -> None:
    """E1: the rest of seed A."""
    declared = await crm.done("rest", "e1", hero="rogue")
    assert await crm.value("select count(*) from events") == 3
    answer = await crm.undo(declared)
    assert answer["sideEffects"] == ["the night is forgotten"]
    assert await crm.value("select string_agg(what, ',') from events") == "born"


async def test_several_records_are_taken_back_together_or_not_at_all(crm: Crm) -> None:
    declared = await crm.done("pay", "e1", dealId="D-881", accountId=1)
    assert [effect["resource"] for effect in declared["effects"]] == [DEAL, "crm://acme/account/1"]
    assert set(declared["undo"]["ifVersions"]) == {DEAL, "crm://acme/account/1"}
    await crm.pool.execute("update accounts set balance = 7")
    assert (await crm.undo(declared))["outcome"] == "conflict"
    assert await crm.stage() == "paid"
    await crm.pool.execute("update accounts set balance = 50")
    assert (await crm.undo(declared))["outcome"] == "reverted"
    assert (await crm.stage(), await crm.value("select balance from accounts")) == ("won", 100)


async def test_a_further_record_may_be_overridden_at_the_version_that_was_seen(crm: Crm) -> None:
    """G5."""
    declared = await crm.done("pay", "e1", dealId="D-881", accountId=1)
    await crm.pool.execute("update accounts set balance = 7")
    seen = (await crm.server.observe({"resource": "crm://acme/account/1"}))["version"]
    stale, fresh = declared["undo"]["ifVersions"], declared["undo"]["ifVersions"] | {"crm://acme/account/1": seen}
    assert (await crm.undo(declared, force=True, ifVersions=stale))["outcome"] == "conflict"
    assert (await crm.undo(declared, force=True, ifVersions=fresh))["outcome"] == "reverted"
    assert await crm.value("select balance from accounts") == 100


async def test_single_fields_of_one_of_several_records_leave_the_other_alone(crm: Crm) -> None:
    """S3."""
    declared = await crm.done("pay", "e1", dealId="D-881", accountId=1)
    assert (await crm.undo(declared, fields=["stage"]))["outcome"] == "reverted"
    assert (await crm.stage(), await crm.value("select balance from accounts")) == ("won", 50)


async def test_a_record_that_somebody_changed_since_is_a_conflict_and_untouched(crm: Crm) -> None:
    """G8."""
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    await crm.pool.execute("update deals set title = 'Quay'")
    answer = await crm.undo(declared)
    assert answer["outcome"] == "conflict" and "changed it since" in answer["detail"]
    assert await crm.stage() == "lost"


async def test_force_takes_back_over_the_version_that_was_seen_and_over_no_newer_one(crm: Crm) -> None:
    """G5."""
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    await crm.pool.execute("update deals set title = 'Quay'")
    seen = (await crm.server.observe({"resource": DEAL}))["version"]
    await crm.pool.execute("update deals set title = 'Wharf'")
    assert (await crm.undo(declared, force=True, ifVersion=seen))["outcome"] == "conflict"
    seen = (await crm.server.observe({"resource": DEAL}))["version"]
    assert (await crm.undo(declared, force=True, ifVersion=seen))["outcome"] == "reverted"
    assert await crm.value("select title from deals") == "Harbour"


async def test_single_fields_are_taken_back_and_the_others_stay(crm: Crm) -> None:
    """S3."""
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost", title="Sunk")
    await crm.pool.execute("update deals set title = 'Quay'")
    seen = (await crm.server.observe({"resource": DEAL}))["version"]
    answer = await crm.undo(declared, force=True, ifVersion=seen, fields=["stage"])
    assert answer["outcome"] == "reverted"
    assert answer["effect"]["changes"] == [{"field": "stage", "old": "lost", "new": "won"}]
    row = await crm.row("select stage, title from deals")
    assert (row["stage"], row["title"]) == ("won", "Quay")


async def test_fields_that_the_record_has_not_are_refused(crm: Crm) -> None:
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    assert (await crm.undo(declared, fields=["colour"]))["outcome"] == "failed"
    assert await crm.stage() == "lost"


async def test_a_revert_that_does_not_bring_back_everything_changes_nothing(crm: Crm) -> None:
    """S5."""
    declared = await crm.done("stubborn", "e1", dealId="D-881")
    answer = await crm.undo(declared)
    assert answer["outcome"] == "failed" and "title" in answer["detail"]
    assert await crm.stage() == "stuck"


async def test_fifty_clicks_take_back_once(crm: Crm) -> None:
    """G9."""
    declared = await crm.done("charge", "e1", accountId=1, amount=30)
    answers = await asyncio.gather(*(crm.undo(declared, f"click-{n}") for n in range(50)))
    outcomes = sorted(answer["outcome"] for answer in answers)
    assert outcomes == ["already_reverted"] * 49 + ["reverted"]
    assert await crm.value("select balance from accounts") == 100


async def test_the_same_key_gets_the_same_answer(crm: Crm) -> None:
    """G9: a doubtful reversal is resumed under its own key."""
    declared = await crm.done("charge", "e1", accountId=1, amount=30)
    answers = await asyncio.gather(*(crm.undo(declared, "click") for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["outcome"] == "reverted"
    seen = (await crm.server.observe({"entry": "click"}))["call"]
    assert seen["outcome"] == "committed" and seen["result"] == answers[0]


async def test_a_reversal_is_taken_back_and_the_call_once_more(crm: Crm) -> None:
    """S12."""
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    taken = await crm.undo(declared)
    again = await crm.undo(taken)
    assert again["outcome"] == "reverted" and await crm.stage() == "lost"
    assert (await crm.undo(taken))["outcome"] == "already_reverted"
    assert (await crm.undo(declared))["outcome"] == "reverted"
    assert await crm.stage() == "won"
    assert (await crm.undo(declared))["outcome"] == "already_reverted"


async def test_a_closed_window_and_a_strangers_token_change_nothing(crm: Crm) -> None:
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    await crm.pool.execute("update takeback_tokens set undo_by = now() - interval '1 second'")
    assert "window" in (await crm.undo(declared))["detail"]
    declared["undo"]["compensationToken"] = "guessed"
    assert (await crm.undo(declared))["outcome"] == "failed"
    assert await crm.stage() == "lost"
