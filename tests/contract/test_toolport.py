"""The port to a tool server: the same tests on MCP over HTTP, MCP over stdio and NATS, each with a real SDK server."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client as Nats
from starlette.types import ASGIApp

from recorder.toolport import NoAnswer, NotSent, Outcome, ToolPort, ToolRefused, open_port
from takeback.extension import RequestMeta, UndoRequest
from tests.crm_server import EMPTY, ROWS, SCHEMA, build
from tests.servers import Backend
from tests.serving import served
from tests.waiting import WAIT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEAL = "crm://acme/deal/D-881"
SECRET = "s3cret"
ENVIRON = {"TAKEBACK_SECRET_CRM": SECRET, "TAKEBACK_ALLOW_COMMANDS": "1", "TAKEBACK_HTTP_ALLOW_PRIVATE": "1"}


@asynccontextmanager
async def http(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """The application's MCP door on a port of this host."""
    async with served(app, port) as url:
        yield f"{url}/mcp"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_pool(empty_shared_database: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(empty_shared_database, min_size=1, max_size=12) as pool:
        await pool.execute(SCHEMA)
        await build(pool).prepare()
        yield pool


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus(servers: Backend, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nats]:
    server = servers.nats(tmp_path_factory.mktemp("nats"))
    await server.start()
    client = await nats.connect(server.url)
    yield client
    await client.close()
    await server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["mcp over http", "mcp over stdio", "nats"])
async def config(
    request: pytest.FixtureRequest, shared_pool: asyncpg.Pool, empty_shared_database: str, bus: Nats
) -> AsyncIterator[dict[str, Any]]:
    """How the server is reached; it serves all tests of one transport."""
    match request.param:
        case "mcp over http":
            async with http(build(shared_pool).http_app(secret=SECRET)) as url:
                yield {"transport": "mcp", "url": url, "headers": {"Authorization": "Bearer env:TAKEBACK_SECRET_CRM"}}
        case "mcp over stdio":
            env = {"CRM_DATABASE": empty_shared_database}
            yield {"transport": "mcp", "command": sys.executable, "args": ["-m", "tests.crm_server"], "env": env}
        case _:
            service = await build(shared_pool).serve_nats(bus, "tools.crm")
            yield {"transport": "nats", "subject": "tools.crm"}
            await service.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_port(config: dict[str, Any], bus: Nats) -> AsyncIterator[ToolPort]:
    port = await open_port(config, bus, ENVIRON)
    yield port
    await port.close()


@pytest_asyncio.fixture(loop_scope="module")
async def pool(shared_pool: asyncpg.Pool) -> asyncpg.Pool:
    """The server's database, as new."""
    await shared_pool.execute(EMPTY + ROWS)
    return shared_pool


@pytest.fixture
def port(shared_port: ToolPort, pool: asyncpg.Pool) -> ToolPort:
    """The port, to a server that is as new."""
    return shared_port


async def call(
    port: ToolPort, operation: str, key: str = "ent_1", deadline: float = WAIT_SECONDS, **arguments: Any
) -> Outcome:
    meta = RequestMeta(entry=key, idempotency_key=key, fence=1, serial_key=f"cmp_{key}")
    return await port.call(operation, arguments, meta, deadline=deadline)


def undo_of(offered: dict[str, Any], **more: Any) -> UndoRequest:
    token, version = offered["compensationToken"], offered["ifVersion"]
    return UndoRequest(compensation_token=token, if_version=version, idempotency_key="ent_9", **more)


async def test_a_server_describes_its_operations_and_the_three_tools_are_hidden(port: ToolPort) -> None:
    """J15, J16."""
    described = await port.describe(deadline=WAIT_SECONDS)
    assert (described.name, described.version) == ("crm", "2.1")
    names = {operation.name for operation in described.operations}
    assert {"update_deal", "get_deal", "send_mail"} <= names
    assert not any(name.startswith("takeback_") for name in names)
    assert described.undo_tool and described.observe_tool and described.preview_tool
    update = next(operation for operation in described.operations if operation.name == "update_deal")
    assert update.declaration.resource == "crm://acme/deal/{dealId}" and update.declaration.unresolved == []
    assert update.input_schema["required"] == ["dealId", "stage"]
    assert update.description == "Move a deal to another stage."


async def test_a_pin_is_the_same_whenever_the_definition_is(port: ToolPort) -> None:
    first, second = await port.describe(deadline=WAIT_SECONDS), await port.describe(deadline=WAIT_SECONDS)
    assert [o.pin for o in first.operations] == [o.pin for o in second.operations]
    assert len({o.pin for o in first.operations}) == len(first.operations)


async def test_a_call_answers_with_its_result_and_what_it_declares(port: ToolPort) -> None:
    """J2, J8."""
    outcome = await call(port, "update_deal", dealId="D-881", stage="lost")
    assert outcome.is_error is False
    assert outcome.result["structuredContent"] == {"dealId": "D-881", "stage": "lost"}
    assert outcome.meta["effect"]["resource"] == DEAL
    assert outcome.meta["undo"]["compensationToken"]


async def test_a_null_in_the_arguments_and_in_the_result_arrives_as_null(port: ToolPort) -> None:
    outcome = await call(port, "update_deal", dealId="D-881", stage="lost", title=None)
    assert outcome.is_error is False
    assert (await call(port, "undeclared", "ent_2")).result["structuredContent"] == {"none": None}


async def test_a_tools_own_error_is_an_outcome(port: ToolPort) -> None:
    """J2."""
    outcome = await call(port, "update_deal", dealId="D-881", stage="nonsense")
    assert outcome.is_error is True
    assert outcome.result["content"][0]["text"] == "nonsense is no stage"


async def test_an_unknown_operation_is_refused_without_doubt(port: ToolPort) -> None:
    with pytest.raises(ToolRefused):
        await call(port, "drop_everything")


async def test_a_call_is_made_once_however_often_its_key_comes(port: ToolPort, pool: asyncpg.Pool) -> None:
    """J7."""
    outcomes = await asyncio.gather(*(call(port, "charge", accountId=1, amount=10) for _ in range(4)))
    assert all(outcome.result["structuredContent"] == {"balance": 90} for outcome in outcomes)
    assert await pool.fetchval("select balance from accounts") == 90


async def test_many_callers_share_the_port(port: ToolPort, pool: asyncpg.Pool) -> None:
    await asyncio.gather(*(call(port, "charge", f"ent_{n}", accountId=1, amount=1) for n in range(30)))
    assert await pool.fetchval("select balance from accounts") == 70


async def test_a_call_past_its_deadline_has_no_answer_and_can_be_asked_about(
    port: ToolPort, pool: asyncpg.Pool
) -> None:
    """J7."""
    await port.describe(deadline=WAIT_SECONDS)
    with pytest.raises(NoAnswer):
        await call(port, "slow", deadline=0.3, seconds=1.5)
    seen = await port.observe(None, entry="ent_1", deadline=WAIT_SECONDS)
    assert seen.call is not None
    assert seen.call.outcome in {"committed", "never"}
    assert await pool.fetchval("select count(*) from runs") == (1 if seen.call.outcome == "committed" else 0)


async def test_a_cancelled_caller_leaves_the_port_to_the_others(port: ToolPort) -> None:
    await port.describe(deadline=WAIT_SECONDS)
    cancelled = asyncio.create_task(call(port, "slow", seconds=1))
    other = asyncio.create_task(call(port, "slow", "ent_2", seconds=0.1))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert (await other).is_error is False
    assert (await call(port, "charge", "ent_3", accountId=1, amount=1)).is_error is False


async def test_an_undo_is_dispatched_and_the_record_is_observed(port: ToolPort) -> None:
    """G8."""
    outcome = await call(port, "update_deal", dealId="D-881", stage="lost")
    undo = outcome.meta["undo"]
    answer = await port.undo(undo_of(undo), deadline=WAIT_SECONDS)
    assert answer.outcome == "reverted" and answer.unresolved == []
    assert answer.undo is not None and answer.undo.kind == "compensate"
    seen = await port.observe(DEAL, entry="ent_9", deadline=WAIT_SECONDS)
    assert seen.exists is True and seen.fields is not None and seen.fields["stage"] == "won"
    assert seen.version == answer.effects[0].version
    assert seen.call is not None and seen.call.outcome == "committed"


async def test_an_undo_over_a_newer_change_is_a_conflict(port: ToolPort, pool: asyncpg.Pool) -> None:
    """G8."""
    undo = (await call(port, "update_deal", dealId="D-881", stage="lost")).meta["undo"]
    await pool.execute("update deals set title = 'Quay'")
    answer = await port.undo(undo_of(undo), deadline=WAIT_SECONDS)
    assert answer.outcome == "conflict"


async def test_single_fields_are_taken_back(port: ToolPort, pool: asyncpg.Pool) -> None:
    undo = (await call(port, "update_deal", dealId="D-881", stage="lost", title="Sunk")).meta["undo"]
    answer = await port.undo(undo_of(undo, force=True, fields=["stage"]), deadline=WAIT_SECONDS)
    assert answer.outcome == "reverted"
    assert await pool.fetchval("select stage || ' ' || title from deals") == "won Sunk"


async def test_a_deleted_record_is_observed_as_gone(port: ToolPort) -> None:
    await call(port, "delete_deal", dealId="D-881")
    seen = await port.observe(DEAL, deadline=WAIT_SECONDS)
    assert (seen.exists, seen.version, seen.fields) == (False, "absent", None)


async def test_a_strangers_resource_is_refused_not_called_absent(port: ToolPort) -> None:
    with pytest.raises(ToolRefused):
        await port.observe("erp://order/1", deadline=WAIT_SECONDS)


async def test_a_preview_tells_the_effect_and_has_none(port: ToolPort, pool: asyncpg.Pool) -> None:
    """P7."""
    preview = await port.preview("update_deal", {"dealId": "D-881", "stage": "lost"}, deadline=WAIT_SECONDS)
    change = preview.effects[0].changes[0]
    assert (change.field, change.old, change.new) == ("stage", "won", "lost")
    assert await pool.fetchval("select stage from deals") == "won"


async def test_a_preview_of_a_call_that_would_fail_is_refused(port: ToolPort) -> None:
    with pytest.raises(ToolRefused, match="nonsense"):
        await port.preview("update_deal", {"dealId": "D-881", "stage": "nonsense"}, deadline=WAIT_SECONDS)


async def test_a_caller_cancelled_while_connecting_does_not_fail_the_next(
    config: dict[str, Any], pool: asyncpg.Pool, bus: Nats
) -> None:
    port = await open_port(config, bus, ENVIRON)
    first = asyncio.create_task(call(port, "charge", "ent_1", accountId=1, amount=1))
    second = asyncio.create_task(call(port, "charge", "ent_2", accountId=1, amount=1))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).is_error is False
    await port.close()
    if config["transport"] != "nats":  # the connection to NATS is the recorder's, not the port's
        with pytest.raises(NotSent):
            await call(port, "charge", "ent_3", accountId=1, amount=1)
