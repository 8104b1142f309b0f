"""The SDK on a real PostgreSQL: calls, and what they leave for taking them back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from takeback.extension import EXTENSION, UndoTemplate, read_definition, read_result, read_undo_answer
from takeback.toolserver import ToolServer
from takeback.toolserver.errors import UnknownTool
from tests.crm_server import EMPTY, ROWS, SCHEMA, build
from tests.servers import Databases

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
DEAL = "crm://acme/deal/D-881"


class Crm:
    """The server with a caller's conveniences."""

    def __init__(self, server: ToolServer, pool: asyncpg.Pool) -> None:
        self.server = server
        self.pool = pool
        self._undos = 0

    async def call(self, name: str, key: str | None = None, fence: int | None = None, **arguments: Any) -> Json:
        meta = {EXTENSION: {"entry": key, "idempotencyKey": key, "fence": fence}}
        return await self.server.call(name, arguments, meta)

    async def done(self, name: str, key: str | None = None, **arguments: Any) -> Json:
        """The declaration in the result of a call that succeeded."""
        answer = await self.call(name, key, **arguments)
        assert answer["isError"] is False, answer
        part: Json = answer["_meta"][EXTENSION]
        return part

    async def undo(self, declared: Json, key: str | None = None, **more: Any) -> Json:
        self._undos += 1
        request = {
            "compensationToken": declared["undo"]["compensationToken"],
            "ifVersion": declared["undo"].get("ifVersion"),
            "force": False,
            "idempotencyKey": key or f"undo-{self._undos}",
        }
        return await self.server.undo(request | more)

    async def row(self, sql: str, *values: Any) -> Any:
        return await self.pool.fetchrow(sql, *values)

    async def value(self, sql: str, *values: Any) -> Any:
        return await self.pool.fetchval(sql, *values)

    async def stage(self) -> Any:
        return await self.value("select stage from deals where id = 'D-881'")


@pytest.fixture(scope="module")
def database(databases: Databases) -> Iterator[str]:
    url = databases.create(empty=True)
    yield url
    databases.drop(url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(database: str) -> AsyncIterator[Crm]:
    async with asyncpg.create_pool(database, min_size=1, max_size=12) as pool:
        await pool.execute(SCHEMA)
        server = build(pool)
        await server.prepare()
        yield Crm(server, pool)


@pytest_asyncio.fixture(loop_scope="module")
async def crm(shared: Crm) -> Crm:
    """The server, its database as new."""
    await shared.pool.execute(EMPTY + ROWS)
    return shared


# --- calls ---


async def test_a_call_answers_with_its_effect_field_by_field_and_a_token_until_its_window_ends(crm: Crm) -> None:
    """J8."""
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    effect, undo = declared["effect"], declared["undo"]
    assert effect["resource"] == DEAL
    assert effect["changes"] == [{"field": "stage", "old": "won", "new": "lost"}]
    assert effect["before"]["fields"]["stage"] == "won"
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
        await _blocked(crm)
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


# --- taking back ---


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


# --- looking ---


async def test_a_record_is_observed_as_it_is_and_a_deleted_one_is_gone(crm: Crm) -> None:
    """G8."""
    seen = await crm.server.observe({"resource": DEAL})
    assert seen["exists"] is True and seen["fields"]["stage"] == "won"
    await crm.pool.execute("delete from deals")
    assert await crm.server.observe({"resource": DEAL}) == {"exists": False, "version": "absent", "fields": None}


async def test_a_resource_of_nobody_is_not_called_absent(crm: Crm) -> None:
    with pytest.raises(UnknownTool):
        await crm.server.observe({"resource": "crm://other/deal/1"})


async def test_a_call_that_never_came_can_never_come_any_more(crm: Crm) -> None:
    """J7."""
    assert (await crm.server.observe({"resource": DEAL, "entry": "e1"}))["call"] == {"outcome": "never"}
    late = await crm.call("update_deal", "e1", dealId="D-881", stage="lost")
    assert late["isError"] is True and "given up" in late["content"][0]["text"]
    assert await crm.stage() == "won"
    assert (await crm.server.observe({"entry": "e1"}))["call"] == {"outcome": "never"}


async def test_a_committed_call_is_observed_with_what_it_declared(crm: Crm) -> None:
    """J7."""
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    seen = (await crm.server.observe({"entry": "e1"}))["call"]
    assert seen["outcome"] == "committed" and seen["meta"] == declared


async def test_a_call_that_is_still_running_is_waited_for(crm: Crm) -> None:
    """J7: never while it may still commit."""
    async with crm.pool.acquire() as person, person.transaction():
        await person.execute("lock table runs in exclusive mode")
        call = asyncio.create_task(crm.call("update_deal", "e1", dealId="D-881", stage="lost"))
        await _blocked(crm)
        look = asyncio.create_task(crm.server.observe({"entry": "e1"}))
        await _blocked(crm, 2)
    assert (await call)["isError"] is False
    assert (await look)["call"]["outcome"] == "committed"


async def test_a_preview_is_what_the_call_then_does_and_does_nothing_itself(crm: Crm) -> None:
    """P7."""
    shown = await crm.server.preview({"operation": "update_deal", "arguments": {"dealId": "D-881", "stage": "lost"}})
    assert await crm.stage() == "won"
    assert await crm.value("select count(*) from runs") == 0
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    assert shown["effect"] == declared["effect"]


async def test_the_preview_of_a_mail_shows_the_recipient_and_sends_nothing(crm: Crm) -> None:
    """S10."""
    shown = await crm.server.preview({"operation": "send_mail", "arguments": {"to": "all", "subject": "s"}})
    assert {"field": "to", "old": None, "new": "all"} in shown["effect"]["changes"]
    assert await crm.value("select count(*) from mails") == 0


async def _blocked(crm: Crm, count: int = 1) -> None:
    """Until that many connections wait for a lock."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while await crm.value(waiting) < count:
            await asyncio.sleep(0)
