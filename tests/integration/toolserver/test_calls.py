"""The SDK on a real PostgreSQL: what a call does, and what its author may say of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from takeback.extension import EXTENSION, UndoTemplate, read_definition, read_result
from takeback.toolserver import ToolServer
from takeback.toolserver.errors import UnknownTool
from tests.integration.toolserver.conftest import DEAL, Crm

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_call_answers_with_its_effect_field_by_field_and_a_token_until_its_window_ends(crm: Crm) -> None:
    """J8; P7: and with what may be otherwise later."""
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    effect, undo = declared["effect"], declared["undo"]
    assert effect["resource"] == DEAL
    assert effect["changes"] == [{"field": "stage", "old": "won", "new": "lost"}]
    assert effect["before"]["fields"]["stage"] == "won"
    assert effect["mayChange"] == ["weight"]
    assert effect["before"]["version"] != effect["version"] == undo["ifVersion"]
    assert undo["kind"] == "compensate"
    assert undo["sideEffects"] == ["the owner is told"]
    left = datetime.fromisoformat(undo["undoBy"]) - datetime.now(UTC)
    assert timedelta(days=6, hours=23) < left <= timedelta(days=7)
    assert declared["broadcasts"] == [{"type": "deal_updated", "dealId": "D-881"}]
    read = read_result({EXTENSION: declared}, UndoTemplate(), datetime.now(UTC))
    assert read.unresolved == [] and read.undo.kind == "compensate"


async def test_a_repeated_key_gets_the_first_answer_and_nothing_happens_again(crm: Crm) -> None:
    """J7."""
    first = await crm.call("charge", "e1", accountId=1, amount=30)
    again = await crm.call("charge", "e1", accountId=1, amount=30)
    assert first == again
    assert await crm.value("select balance from accounts") == 70


async def test_a_key_used_by_many_at_once_has_one_effect(crm: Crm) -> None:
    """J7."""
    answers = await asyncio.gather(*(crm.call("charge", "e1", accountId=1, amount=30) for _ in range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert await crm.value("select balance from accounts") == 70


async def test_calls_on_one_record_at_once_each_see_what_the_other_left(crm: Crm) -> None:
    """J4: no snapshot holds a state that another call had already replaced."""
    calls = (crm.done("charge", f"e{n}", accountId=1, amount=1) for n in range(10))
    seen = [declared["effect"]["changes"][0]["old"] for declared in await asyncio.gather(*calls)]
    assert sorted(seen) == list(range(91, 101))


async def test_a_write_of_the_application_itself_in_between_is_in_the_snapshot(crm: Crm) -> None:
    """J4: the state before is the one that the call replaced, whoever wrote it."""
    async with crm.pool.acquire() as person, person.transaction():
        await person.execute("update accounts set balance = 60")
        call = asyncio.create_task(crm.done("charge", "e1", accountId=1, amount=1))
        await crm.blocked()
    assert (await call)["effect"]["changes"] == [{"field": "balance", "old": 60, "new": 59}]


async def test_a_tools_own_error_is_answered_rolled_back_and_answered_again(crm: Crm) -> None:
    """J2."""
    first = await crm.call("update_deal", "e1", dealId="D-881", stage="nonsense")
    assert first == {"content": [{"type": "text", "text": "nonsense is no stage"}], "isError": True}
    assert await crm.call("update_deal", "e1", dealId="D-881", stage="nonsense") == first
    assert (await crm.server.observe({"entry": "e1"}))["call"]["outcome"] == "failed"


async def test_a_bug_inside_an_operation_leaves_nothing_and_tells_nothing_of_itself(crm: Crm) -> None:
    answer = await crm.call("broken", "e1")
    assert answer["isError"] is True
    assert "secret" not in str(answer)
    assert await crm.value("select count(*) from runs") == 0


async def test_wrong_arguments_are_named_and_nothing_runs(crm: Crm) -> None:
    answer = await crm.call("update_deal", "e1", dealId="D-881", stages="lost")
    assert answer["isError"] is True
    assert "stages" in answer["content"][0]["text"] and "stage" in answer["content"][0]["text"]
    assert await crm.value("select count(*) from runs") == 0


async def test_a_value_that_the_database_cannot_take_is_the_callers_error(crm: Crm) -> None:
    answer = await crm.call("delete_note", "e1", noteId="no uuid")
    assert answer["isError"] is True
    assert "cannot take" in answer["content"][0]["text"]


async def test_an_unknown_operation_is_no_answer_of_a_tool(crm: Crm) -> None:
    with pytest.raises(UnknownTool):
        await crm.call("drop_everything")


async def test_a_lower_fence_is_refused_and_a_repeat_of_an_answered_key_is_not(crm: Crm) -> None:
    """J19."""
    await crm.call("charge", "e1", 5, accountId=1, amount=1)
    await crm.call("charge", "e2", 7, accountId=1, amount=1)
    stale = await crm.call("charge", "e3", 6, accountId=1, amount=1)
    assert stale["isError"] is True and "fence" in stale["content"][0]["text"]
    assert (await crm.call("charge", "e1", 5, accountId=1, amount=1))["isError"] is False
    assert await crm.value("select balance from accounts") == 98


async def test_fences_of_different_serial_keys_are_not_compared(crm: Crm) -> None:
    """J19: two campaigns that write one record count on their own."""
    for key, serial, fence in (("e1", "cmp_a", 900), ("e2", "cmp_b", 1), ("e3", "cmp_b", 0)):
        meta = {EXTENSION: {"entry": key, "idempotencyKey": key, "fence": fence, "serialKey": serial}}
        await crm.server.call("charge", {"accountId": 1, "amount": 1}, meta)
    assert await crm.value("select balance from accounts") == 98


async def test_an_effect_outside_the_database_is_never_repeated(crm: Crm) -> None:
    """J7: after a crash in the middle the key says that nobody knows."""
    assert (await crm.call("send_mail", "e1", to="eve", subject="s"))["isError"] is False
    await crm.call("send_mail", "e1", to="eve", subject="s")
    assert await crm.value("select count(*) from mails") == 1
    with pytest.raises(RuntimeError):
        await crm.call("send_mail", "e2", to="crash", subject="s")
    assert (await crm.server.observe({"entry": "e2"}))["call"] == {"outcome": "unknown"}
    refused = await crm.call("send_mail", "e3", to="nobody", subject="s")
    assert refused["isError"] is True
    assert (await crm.server.observe({"entry": "e3"}))["call"]["outcome"] == "failed"


async def test_an_operation_that_says_nothing_of_undo_is_unknown(crm: Crm) -> None:
    """J9."""
    assert (await crm.done("undeclared", "e1"))["undo"] == {"kind": "unknown"}


async def test_a_read_says_what_it_used(crm: Crm) -> None:
    """J12."""
    one = await crm.done("get_deal", "e1", dealId="D-881")
    assert one["effect"]["uses"] == [DEAL] and one["undo"] == {"kind": "none"}
    assert (await crm.done("list_deals", "e2"))["effect"]["uses"] == [DEAL]
    assert (await crm.done("rest", "e3", hero="rogue"))["effect"]["uses"] == ["game://table/rogue"]


async def test_a_definition_declares_what_its_decorator_says(crm: Crm) -> None:
    """J15."""
    tools = {tool["name"]: tool for tool in crm.server.tools()}
    declared = {name: read_definition(tool["_meta"]) for name, tool in tools.items()}
    assert all(d.unresolved == [] for d in declared.values())
    assert declared["update_deal"].resource == "crm://acme/deal/{dealId}"
    assert declared["update_deal"].undo.window == timedelta(days=7)
    assert declared["create_deal"].resource is None, "its id is known only afterwards"
    assert declared["delete_deal"].carries_before and declared["delete_deal"].undo.undo_authority == "owner"
    assert declared["rest"].undo.window == timedelta(seconds=90)
    charge = declared["charge"]
    assert charge.money is not None and charge.money.amount == "amount" and charge.secret == ["cardNumber"]
    assert declared["get_deal"].read_only and declared["undeclared"].undo.kind == "unknown"
    assert declared["takeback_undo"].role == "undo"
    assert set(tools["update_deal"]["inputSchema"]["properties"]) == {"dealId", "stage", "title"}
    assert tools["update_deal"]["inputSchema"]["required"] == ["dealId", "stage"]


async def test_one_record_is_read_in_one_way(crm: Crm) -> None:
    """G8: two ways would see two versions."""
    with pytest.raises(TypeError, match="declared twice"):
        crm.server.record("crm://acme/deal/{dealId}")


async def test_what_an_author_got_wrong_is_said_at_the_decorator() -> None:
    server = ToolServer("x", store=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="async"):
        server.operation()(lambda tx: None)  # type: ignore[arg-type]

    @server.operation(resource="x://y/{a}")
    async def change(tx: Any, a: str, b: str) -> None: ...

    with pytest.raises(TypeError, match="asks for 'b'"):

        @change.snapshot
        async def _(tx: Any, b: str) -> None: ...

    with pytest.raises(TypeError, match="two operations"):

        @server.operation(name="change")
        async def other(tx: Any) -> None: ...

    shared = server.record("x://z/{a}")

    @server.operation(record=shared)
    async def third(tx: Any, a: str) -> None: ...

    with pytest.raises(TypeError, match=r"\.snapshot needs resource"):

        @third.snapshot
        async def _(tx: Any, a: str) -> None: ...
