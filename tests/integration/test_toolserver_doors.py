"""The SDK's doors and its promises when something breaks in the middle."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import nats
import pytest
from nats.aio.client import Client as Nats

from takeback.extension import EXTENSION
from takeback.toolserver import ToolServer
from takeback.toolserver.effects import changes
from tests.contract.test_toolport import http
from tests.crm_server import ROWS, SCHEMA, build
from tests.waiting import eventually

Json = dict[str, Any]


@pytest.fixture
async def pool(empty_postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(empty_postgres_url, min_size=1, max_size=8) as pool:
        await pool.execute(SCHEMA + ROWS)
        yield pool


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Nats]:
    client = await nats.connect(nats_url)
    yield client
    await client.close()


async def ask(bus: Nats, verb: str, request: Any) -> Json:
    data = request if isinstance(request, bytes) else json.dumps(request).encode()
    answer: Json = json.loads((await bus.request(f"tools.crm.{verb}", data, timeout=20)).data)
    return answer


@asynccontextmanager
async def _held_up(pool: asyncpg.Pool) -> AsyncIterator[Callable[[], Awaitable[int | None]]]:
    """No call of `slow` gets on while the block lasts; answers which backend waits in the middle of one, if any."""
    question = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    async with pool.acquire() as somebody, somebody.transaction():
        await somebody.execute("lock table runs in exclusive mode")
        yield lambda: pool.fetchval(question)


def keyed(name: str, key: str, **arguments: Any) -> Json:
    return {"name": name, "arguments": arguments, "_meta": {EXTENSION: {"entry": key, "idempotencyKey": key}}}


async def test_two_processes_on_one_subject_answer_each_request_once(pool: asyncpg.Pool, bus: Nats) -> None:
    services = [await build(pool).serve_nats(bus, "tools.crm") for _ in range(2)]
    requests = (keyed("charge", f"e{n}", accountId=1, amount=1) for n in range(20))
    answers = await asyncio.gather(*(ask(bus, "call", request) for request in requests))
    assert all(answer["isError"] is False for answer in answers)
    assert await pool.fetchval("select balance from accounts") == 80
    for service in services:
        await service.close()


async def test_a_service_that_closes_first_answers_what_it_took(pool: asyncpg.Pool, bus: Nats) -> None:
    service = await build(pool).serve_nats(bus, "tools.crm")
    async with _held_up(pool) as waiting:
        running = asyncio.create_task(ask(bus, "call", keyed("slow", "e1", seconds=0)))
        await eventually(waiting)
        closing = asyncio.create_task(service.close())
        await asyncio.sleep(0)
        assert not closing.done()
    await closing
    assert (await running)["isError"] is False
    with pytest.raises(nats.errors.NoRespondersError):
        await ask(bus, "call", keyed("charge", "e2", accountId=1, amount=1))


@pytest.mark.parametrize(
    ("verb", "request_", "code"),
    [
        ("call", b"{", -32600),
        ("call", [], -32600),
        ("call", {}, -32602),
        ("call", {"name": "nothing"}, -32602),
        ("undo", {}, -32602),
        ("undo", {"compensationToken": 3}, -32602),
        ("observe", {"resource": "erp://x"}, -32602),
        ("preview", {"operation": "nothing"}, -32602),
    ],
)
async def test_a_request_that_cannot_be_read_is_refused_by_name(
    pool: asyncpg.Pool, bus: Nats, verb: str, request_: Any, code: int
) -> None:
    service = await build(pool).serve_nats(bus, "tools.crm")
    assert (await ask(bus, verb, request_))["error"]["code"] == code
    await service.close()


@pytest.mark.parametrize("meta", [3, {EXTENSION: 3}, {EXTENSION: {"fence": "high"}}, {EXTENSION: {"entry": ["e"]}}])
async def test_a_request_with_a_broken_declaration_is_refused_and_runs_nothing(
    pool: asyncpg.Pool, bus: Nats, meta: Any
) -> None:
    """J19: a fence that cannot be read protects nobody."""
    service = await build(pool).serve_nats(bus, "tools.crm")
    request = {"name": "charge", "arguments": {"accountId": 1, "amount": 1}, "_meta": meta}
    assert (await ask(bus, "call", request))["error"]["code"] == -32602
    assert await pool.fetchval("select balance from accounts") == 100
    await service.close()


async def test_a_connection_lost_in_the_middle_leaves_nothing_and_the_key_says_never(
    pool: asyncpg.Pool, bus: Nats
) -> None:
    """J7."""
    service = await build(pool).serve_nats(bus, "tools.crm")
    async with _held_up(pool) as waiting:
        running = asyncio.create_task(ask(bus, "call", keyed("slow", "e1", seconds=0)))
        pid = await eventually(waiting)
        await pool.execute("select pg_terminate_backend($1)", pid)
        assert (await running)["error"]["code"] == -32603, "not known: the caller must ask"
    assert (await ask(bus, "observe", {"entry": "e1"}))["call"] == {"outcome": "never"}
    assert await pool.fetchval("select count(*) from runs") == 0
    await service.close()


async def test_who_has_not_the_secret_gets_401_before_anything_is_read(pool: asyncpg.Pool) -> None:
    """J16."""
    async with http(build(pool).http_app(secret="right")) as url, httpx.AsyncClient() as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "right"}):
            for method in ("POST", "GET", "DELETE"):
                answer = await client.request(method, url, headers=headers, content=b"{")
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"


async def test_several_servers_may_share_a_database_and_start_at_once(pool: asyncpg.Pool) -> None:
    await asyncio.gather(*(build(pool).prepare() for _ in range(6)))


async def test_a_server_with_nothing_in_it_describes_itself(pool: asyncpg.Pool, bus: Nats) -> None:
    from takeback.toolserver import PostgresStore  # noqa: PLC0415

    service = await ToolServer("empty", store=PostgresStore(pool)).serve_nats(bus, "tools.crm")
    described = await ask(bus, "describe", {})
    assert described["serverInfo"] == {"name": "empty", "version": "1"}
    assert described["capabilities"]["extensions"][EXTENSION]["version"] == 1
    await service.close()


def test_a_field_that_is_null_is_not_a_field_that_is_missing() -> None:
    assert changes({"a": None}, {}) == [{"field": "a", "old": None, "new": None}]
    assert changes({"a": None}, {"a": None}) == []
    assert changes(None, {"a": 1}) == [{"field": "a", "old": None, "new": 1}]
    assert changes({"a": 1}, None) == [{"field": "a", "old": 1, "new": None}]
    assert changes({"a": 1, "b": [1]}, {"a": 1, "b": [2]}) == [{"field": "b", "old": [1], "new": [2]}]
