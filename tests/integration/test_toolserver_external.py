"""The SDK before a system that is not its own database: what was done there cannot be rolled back, and is not done twice."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from takeback.extension import EXTENSION
from takeback.toolserver import Call, InDoubt, OperationError, PostgresStore, ToolServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


class Shelf:
    """Somebody else's application: boxes, moves between them, and a reverse for each move, counted."""

    def __init__(self) -> None:
        self.boxes: dict[str, int] = {"a": 5, "b": 0}
        self.moves: list[tuple[str, str, int]] = []
        self.asked = 0
        self.lies = self.hangs = self.dark = False

    def move(self, source: str, target: str, count: int) -> int:
        self.asked += 1
        if not self.lies:
            self.boxes[source] -= count
            self.boxes[target] += count
        if self.hangs:
            raise ConnectionError("no answer came")
        self.moves.append((source, target, count))
        return len(self.moves) - 1

    def reverse(self, move: int) -> int:
        source, target, count = self.moves[move]
        return self.move(target, source, count)

    def read(self, box: str) -> dict[str, int]:
        if self.dark:
            raise OperationError("The shelf cannot be seen.")
        return {"count": self.boxes[box]}


def build(shelf: Shelf, pool: asyncpg.Pool) -> ToolServer:
    server = ToolServer("shelf", store=PostgresStore(pool))
    source_box, target_box = server.record("shelf://box/{source}"), server.record("shelf://box/{target}")

    @source_box.read
    async def _(source: str) -> dict[str, int]:
        return shelf.read(source)

    @target_box.read
    async def _(target: str) -> dict[str, int]:
        return shelf.read(target)

    @server.operation(record=[source_box, target_box], via="ui", external=True)
    async def move(source: str, target: str, count: int) -> dict[str, int]:
        """Move things from one box to another."""
        if count > shelf.boxes[source]:
            raise OperationError("There are not so many. Nothing was changed.")
        done = shelf.move(source, target, count)
        shelf.dark = shelf.dark or count == 4  # a stand-in for a screen that goes dark just then
        return {"move": done}

    @move.revert
    async def _(call: Call, result: dict[str, int]) -> dict[str, int]:
        call.side_effect("somebody climbed a ladder")
        return {"move": shelf.reverse(result["move"])}

    @server.operation(record=source_box, external=True, name="empty")
    async def empty(source: str) -> dict[str, int]:
        """Empty a box, of which nobody says how it is taken back."""
        return {"had": shelf.boxes.pop(source)}

    return server


class Clerk:
    """Asks the server as the recorder does."""

    def __init__(self, shelf: Shelf, server: ToolServer) -> None:
        self.shelf = shelf
        self.server = server

    async def move(self, count: int, key: str = "e1") -> Json:
        answer = await self.server.call(
            "move",
            {"source": "a", "target": "b", "count": count},
            {EXTENSION: {"entry": key, "idempotencyKey": key}},
        )
        return answer if answer["isError"] else dict(answer["_meta"][EXTENSION])

    async def undo(self, undo: Json, key: str = "u1", **more: Any) -> Json:
        request = {
            "compensationToken": undo["compensationToken"],
            "ifVersion": undo["ifVersion"],
            "force": False,
            "idempotencyKey": key,
        }
        return await self.server.undo(request | more)


@pytest_asyncio.fixture(loop_scope="module")
async def clerk(empty_shared_database: str) -> AsyncIterator[Clerk]:
    async with asyncpg.create_pool(empty_shared_database, min_size=1, max_size=6) as pool:
        shelf = Shelf()
        server = build(shelf, pool)
        await server.prepare()
        yield Clerk(shelf, server)
        await pool.execute("truncate takeback_answers, takeback_tokens, takeback_fences")


async def test_one_reverse_brings_back_all_records_of_a_call_and_is_asked_for_once(clerk: Clerk) -> None:
    """J15, G8, G9: read before, one click, read after; the same key hears the same answer, another hears that it was done."""
    declared = await clerk.move(2)
    assert (declared["undo"]["kind"], declared["undo"]["via"]) == ("compensate", "ui")
    assert [effect["before"]["fields"] for effect in declared["effects"]] == [{"count": 5}, {"count": 0}]
    answers = await asyncio.gather(*(clerk.undo(declared["undo"], "u1") for _ in range(3)), return_exceptions=True)
    outcomes = {answer["outcome"] for answer in answers if isinstance(answer, dict)}
    assert outcomes == {"reverted"}
    assert all(isinstance(answer, dict | InDoubt) for answer in answers)
    assert (await clerk.undo(declared["undo"], "u2"))["outcome"] == "already_reverted"
    assert (clerk.shelf.boxes, clerk.shelf.asked) == ({"a": 5, "b": 0}, 2)


async def test_a_reversal_is_taken_back_by_the_reverse_of_the_reverse(clerk: Clerk) -> None:
    """S12: what the revert returned is what its own undo reverts."""
    done = await clerk.undo((await clerk.move(2))["undo"])
    assert done["sideEffects"] == ["somebody climbed a ladder"]
    assert (await clerk.undo(done["undo"], "u2"))["outcome"] == "reverted"
    assert clerk.shelf.boxes == {"a": 3, "b": 2}


async def test_what_changed_since_is_a_conflict_and_nobody_is_asked(clerk: Clerk) -> None:
    """G8: either record counts."""
    declared = await clerk.move(2)
    clerk.shelf.boxes["b"] = 7
    assert (await clerk.undo(declared["undo"]))["outcome"] == "conflict"
    assert clerk.shelf.asked == 1


async def test_a_reverse_that_is_only_claimed_is_unverified_and_can_be_asked_for_again(clerk: Clerk) -> None:
    """G8: the answer says what is there; the token is not used up."""
    declared = await clerk.move(2)
    clerk.shelf.lies = True
    answer = await clerk.undo(declared["undo"])
    assert answer["outcome"] == "unverified"
    assert "count of shelf://box/a" in answer["detail"]
    assert (await clerk.server.observe({"entry": "u1"}))["call"]["outcome"] == "committed"
    clerk.shelf.lies = False
    assert (await clerk.undo(declared["undo"], "u2"))["outcome"] == "reverted"


async def test_an_undo_that_got_no_answer_stays_in_doubt_and_is_not_sent_again(clerk: Clerk) -> None:
    """J7, G9: the key says that something was begun; nobody asks twice."""
    declared = await clerk.move(2)
    clerk.shelf.hangs = True
    with pytest.raises(ConnectionError):
        await clerk.undo(declared["undo"])
    with pytest.raises(InDoubt):
        await clerk.undo(declared["undo"])
    assert (await clerk.server.observe({"entry": "u1"}))["call"]["outcome"] == "unknown"
    assert clerk.shelf.asked == 2


async def test_a_record_that_cannot_be_read_after_the_effect_is_doubt_and_no_refusal(clerk: Clerk) -> None:
    """J7: the effect stands; an error of the reading must not say that nothing was changed."""
    with pytest.raises(InDoubt):
        await clerk.move(4)
    assert clerk.shelf.boxes == {"a": 1, "b": 4}
    clerk.shelf.dark = False
    with pytest.raises(InDoubt):
        await clerk.move(4)
    assert clerk.shelf.asked == 1


async def test_a_record_that_cannot_be_read_before_the_undo_fails_it_and_changes_nothing(clerk: Clerk) -> None:
    """G8: no reverse without a look."""
    declared = await clerk.move(2)
    clerk.shelf.dark = True
    answer = await clerk.undo(declared["undo"])
    assert (answer["outcome"], answer["detail"]) == ("failed", "The shelf cannot be seen.")
    assert clerk.shelf.asked == 1


async def test_single_fields_are_refused_where_the_application_reverses_the_whole(clerk: Clerk) -> None:
    """G5: said in words, nothing asked."""
    declared = await clerk.move(2)
    answer = await clerk.undo(declared["undo"], fields=["count"])
    assert (answer["outcome"], clerk.shelf.asked) == ("failed", 1)
    assert "single fields" in answer["detail"]


async def test_an_external_operation_without_a_reverse_is_unknown(clerk: Clerk) -> None:
    """J9, J15: only what the application itself offers counts."""
    [declared] = [tool for tool in clerk.server.tools() if tool["name"] == "empty"]
    assert declared["_meta"][EXTENSION]["undo"]["kind"] == "unknown"
