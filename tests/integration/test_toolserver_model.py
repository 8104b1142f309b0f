"""Any order of calls, a person's edits, undos, redos and overrides: the SDK against a model of a few lines."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from takeback.extension import EXTENSION
from takeback.toolserver import ToolServer
from tests.crm_server import EMPTY, ROWS, SCHEMA, build

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEAL = "crm://acme/deal/D-881"
VALUES = st.sampled_from(["a", "b", "c"])
# Most of the steps take back one of the first few tokens, so that undos of undos are common.
KINDS = ["call", "edit", "remove", *["undo"] * 8, "override", "same key", "same key"]
STEPS = st.tuples(st.sampled_from(KINDS), VALUES, st.integers(0, 2))


@dataclass
class Taken:
    """A token as the model sees it: the states between which it leads, and whether it was used."""

    declared: dict[str, Any]
    before: str | None
    after: str | None
    parent: "Taken | None" = None
    used: bool = False

    def use(self) -> None:
        turn, line = True, self
        while line is not None:
            line.used, turn = turn, not turn
            line = line.parent  # type: ignore[assignment]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(empty_shared_database: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(empty_shared_database, min_size=1, max_size=4) as pool:
        await pool.execute(SCHEMA)
        await build(pool).prepare()
        yield pool


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=9).map(lambda steps: [("call", "a", 0), *steps]))
async def test_whatever_the_order_only_what_nobody_touched_since_is_taken_back_and_exactly_once(
    pool: asyncpg.Pool, steps: list[tuple[str, str, int]]
) -> None:
    """G5, G8, G9, S7, S11, S12."""
    await pool.execute(EMPTY + ROWS)
    server, stage, tokens = build(pool), "won", list[Taken]()
    now: str | None = stage
    for number, (what, value, index) in enumerate(steps):
        if what == "call" and now is not None:
            declared = await _call(server, f"ent_{number}", value)
            tokens.append(Taken(declared, now, value))
            now = value
        elif what == "edit" and now is not None:
            await pool.execute("update deals set stage = $1", value)
            now = value
        elif what == "remove":
            await pool.execute("delete from deals")
            now = None
        elif what in {"undo", "override", "same key"}:
            now = await _take_back(server, what, number, tokens, tokens[index % len(tokens)], now)
        assert await pool.fetchval("select stage from deals") == now


async def _take_back(
    server: ToolServer, what: str, number: int, tokens: list[Taken], taken: Taken, now: str | None
) -> str | None:
    seen = (await server.observe({"resource": DEAL}))["version"]
    request = {
        "compensationToken": taken.declared["compensationToken"],
        "ifVersion": seen if what == "override" else taken.declared["ifVersion"],
        "force": what == "override",
        "idempotencyKey": f"undo_{number}",
    }
    answer = await server.undo(request)
    if what == "same key":
        assert await server.undo(request) == answer
    if taken.used:
        assert answer["outcome"] == "already_reverted"
        return now
    if what != "override" and now != taken.after:
        assert answer["outcome"] == "conflict"
        return now
    assert answer["outcome"] == "reverted"
    taken.use()
    tokens.append(Taken(answer["undo"], now, taken.before, taken))
    return taken.before


async def _call(server: ToolServer, key: str, stage: str) -> dict[str, Any]:
    meta = {EXTENSION: {"entry": key, "idempotencyKey": key}}
    answer = await server.call("update_deal", {"dealId": "D-881", "stage": stage}, meta)
    undo: dict[str, Any] = answer["_meta"][EXTENSION]["undo"]
    return undo
