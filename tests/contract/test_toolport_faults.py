"""What the port knows of a call when the tool server is away, dies, hangs up or is not the one it was."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import nats
import pytest
from mcp import Client
from nats.aio.client import Client as Nats
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from recorder.toolport import NoAnswer, NotSent, ToolRefused, http_target, open_port
from recorder.toolport.http_target import Target
from takeback.extension import EXTENSION, read_definition
from tests.contract.odd_server import HEADERS, Odd, mcp_port
from tests.contract.test_toolport import DEAL, ENVIRON, SECRET, call, http
from tests.crm_server import ROWS, SCHEMA, build
from tests.ports import own_port
from tests.waiting import WAIT_SECONDS, eventually


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


class Legacy:
    """A server as it was before 2026-07-28: it knows no discovery, only the handshake."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (b"mcp-method", b"server/discover") in scope["headers"]:
            await PlainTextResponse("what?", 400)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class HangingUp:
    """A proxy that passes on what is asked with *word* in it, and hangs up instead of passing on the answer."""

    def __init__(self, word: bytes) -> None:
        self._word = word

    @asynccontextmanager
    async def before(self, url: str) -> AsyncIterator[str]:
        target = urlsplit(url)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(target.hostname, target.port)
            asked = False

            async def ask() -> None:
                nonlocal asked
                while data := await reader.read(65536):
                    asked = asked or self._word in data
                    back.write(data)
                back.close()

            async def answer() -> None:
                while (data := await there.read(65536)) and not asked:
                    writer.write(data)
                writer.close()

            await asyncio.gather(ask(), answer(), return_exceptions=True)
            back.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def test_a_server_that_is_away_was_not_reached() -> None:
    """J3: nothing was forwarded."""
    port = await mcp_port("http://127.0.0.1:1/mcp")
    with pytest.raises(NotSent):
        await call(port, "charge", accountId=1, amount=1)
    await port.close()


async def test_a_command_that_does_not_exist_was_not_reached() -> None:
    port = await open_port({"transport": "mcp", "command": "/no/such"}, None, ENVIRON)  # type: ignore[arg-type]
    with pytest.raises(NotSent):
        await call(port, "charge", accountId=1, amount=1)
    await port.close()


async def test_a_subject_that_nobody_serves_was_not_reached(bus: Nats) -> None:
    port = await open_port({"transport": "nats", "subject": "tools.nobody"}, bus, {})
    with pytest.raises(NotSent):
        await call(port, "charge", accountId=1, amount=1)


async def test_without_its_secret_the_server_refuses_and_the_secret_is_in_no_error(pool: asyncpg.Pool) -> None:
    """J16: the agent cannot go round the recorder."""
    async with http(build(pool).http_app(secret=SECRET)) as url:
        for headers, environ in (
            ({}, {}),
            (HEADERS, {"TAKEBACK_SECRET_CRM": "wrong-one", "TAKEBACK_ORIGINS_CRM": url}),
        ):
            port = await mcp_port(url, headers, {**environ, "TAKEBACK_HTTP_ALLOW_PRIVATE": "1"})
            with pytest.raises(ToolRefused) as refused:
                await call(port, "charge", accountId=1, amount=1)
            assert refused.value.status == 401
            assert "wrong-one" not in f"{refused.value!r} {refused.value.__cause__!r}"
            await port.close()
    assert await pool.fetchval("select balance from accounts") == 100


async def test_a_private_address_is_refused_unless_the_recorder_allows_it(pool: asyncpg.Pool) -> None:
    """J16: whoever registers a tool server does not reach what only the recorder can reach."""
    async with http(build(pool).http_app(secret=SECRET)) as url:
        port = await mcp_port(url, {}, {})
        with pytest.raises(ToolRefused, match="TAKEBACK_HTTP_ALLOW_PRIVATE"):
            await port.describe(deadline=WAIT_SECONDS)
        with pytest.raises(ToolRefused, match="a private address"):
            await call(port, "charge", accountId=1, amount=1)
        await port.close()
    assert await pool.fetchval("select balance from accounts") == 100


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked up, each a public one with its server here."""
    asked: list[str] = []

    async def looked_up(target: Target, *, allow_private: bool) -> str:
        assert not allow_private
        asked.append(target.host)
        return "127.0.0.1"

    monkeypatch.setattr(http_target, "pinned_address", looked_up)
    return asked


async def test_a_name_is_looked_up_once_and_its_address_kept(pool: asyncpg.Pool, asked: list[str]) -> None:
    """J16: a name that was public when it was checked is not followed to a private address."""
    async with http(build(pool).http_app(secret=SECRET)) as url:
        named = url.replace("127.0.0.1", "tools.example")
        port = await mcp_port(named, HEADERS, {"TAKEBACK_SECRET_CRM": SECRET, "TAKEBACK_ORIGINS_CRM": named})
        described = await port.describe(deadline=WAIT_SECONDS)
        assert (await call(port, "charge", accountId=1, amount=1)).is_error is False
        await port.close()
    assert described.operations
    assert asked == ["tools.example"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_server_that_is_not_reached_is_looked_up_again(asked: list[str], revision: str) -> None:
    """J15, J16: one that has moved is found, at a public address."""
    at, odd = own_port(), Odd({"content": [], "resultType": "complete"}, revision)
    port = await mcp_port(f"http://tools.example:{at}/mcp", {}, {})
    async with http(odd, at):
        assert (await call(port, "t")).is_error is False
    with pytest.raises(NotSent):
        await call(port, "t")
    assert asked == ["tools.example"]
    async with http(odd, at):
        assert (await call(port, "t")).is_error is False
        await port.close()
    assert asked == ["tools.example"] * 2


@pytest.mark.parametrize("url", ["http://", "http://xn--a/mcp", "http://_[xn--80/mcp", "http://x:99999/mcp"])
async def test_a_url_that_no_request_can_be_sent_to_is_refused(url: str) -> None:
    with pytest.raises(ToolRefused, match="Nothing was sent"):
        await mcp_port(url, {})


async def test_a_server_may_be_told_something_in_its_urls_query(asked: list[str]) -> None:
    """J16: as with private addresses allowed; only the name is looked up."""
    told: set[bytes] = set()
    odd = Odd({"content": [], "resultType": "complete"}, "2026-07-28")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        told.add(scope.get("query_string", b"team=1"))
        await odd(scope, receive, send)

    async with http(app) as url:
        port = await mcp_port(url.replace("127.0.0.1", "tools.example") + "?team=1", {}, {})
        assert (await call(port, "t")).is_error is False
        await port.close()
    assert told == {b"team=1"}
    assert asked == ["tools.example"]


async def test_a_secret_may_only_come_from_variables_that_are_meant_for_it() -> None:
    with pytest.raises(ToolRefused, match="TAKEBACK_SECRET_"):
        await mcp_port("http://127.0.0.1:1/mcp", {"X-Key": "env:HOME"})
    with pytest.raises(ToolRefused, match="TAKEBACK_SECRET_"):
        await mcp_port("http://127.0.0.1:1/mcp", {"Authorization": "Bearer env:PATH"})
    port = await mcp_port("http://127.0.0.1:1/mcp", HEADERS, {"TAKEBACK_ORIGINS_CRM": "http://127.0.0.1:1"})
    with pytest.raises(ToolRefused, match="does not have"):
        await call(port, "charge", accountId=1, amount=1)
    await port.close()


async def test_a_command_is_not_started_where_commands_are_not_allowed() -> None:
    with pytest.raises(ToolRefused) as refused:
        await open_port({"transport": "mcp", "command": "true"}, None, {})  # type: ignore[arg-type]
    assert refused.value.status == 403


async def test_a_transport_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(ToolRefused):
        await open_port({"transport": "http", "url": "http://127.0.0.1:1"}, None, {})  # type: ignore[arg-type]


async def test_a_server_that_hangs_up_leaves_doubt_and_the_others_are_served(pool: asyncpg.Pool) -> None:
    """J7: the effect is there, the answer was lost, the key tells."""
    async with http(build(pool).http_app(secret=SECRET)) as url, HangingUp(b'"charge"').before(url) as through:
        port = await mcp_port(through)
        await port.describe(deadline=WAIT_SECONDS)
        running = asyncio.create_task(call(port, "slow", "ent_2", seconds=0.2))
        with pytest.raises(NoAnswer):
            await call(port, "charge", accountId=1, amount=1)
        assert (await running).is_error is False
        seen = await port.observe(None, entry="ent_1", deadline=WAIT_SECONDS)
        assert seen.call is not None
        assert seen.call.outcome in {"committed", "never"}, "the hang-up may have cancelled it in time"
        assert await pool.fetchval("select balance from accounts") == (99 if seen.call.outcome == "committed" else 100)
        await port.close()


async def test_a_server_started_anew_is_found_again(pool: asyncpg.Pool) -> None:
    at = own_port()
    async with http(build(pool).http_app(secret=SECRET), at) as url:
        port = await mcp_port(url)
        await call(port, "charge", accountId=1, amount=1)
    with pytest.raises(NotSent):
        await call(port, "charge", "ent_2", accountId=1, amount=1)
    async with http(build(pool).http_app(secret=SECRET), at):
        assert (await call(port, "charge", "ent_3", accountId=1, amount=1)).is_error is False
        await port.close()
    assert await pool.fetchval("select balance from accounts") == 98


async def test_a_server_of_the_older_revision_is_spoken_to_and_its_lost_session_renewed(pool: asyncpg.Pool) -> None:
    at = own_port()
    async with http(Legacy(build(pool).http_app(secret=SECRET)), at) as url:
        port = await mcp_port(url)
        described = await port.describe(deadline=WAIT_SECONDS)
        assert described.undo_tool == "takeback_undo", "known by its role: the handshake drops the extensions"
        await call(port, "charge", accountId=1, amount=1)
    async with http(Legacy(build(pool).http_app(secret=SECRET)), at):
        assert (await call(port, "charge", "ent_2", accountId=1, amount=1)).is_error is False
        await port.close()
    assert await pool.fetchval("select balance from accounts") == 98


async def test_both_revisions_of_mcp_see_what_is_declared(pool: asyncpg.Pool) -> None:
    async with http(build(pool).http_app(secret=None)) as url:
        for mode in ("legacy", "2026-07-28", "auto"):
            async with Client(url, mode=mode) as client:
                tools = {tool.name: read_definition(tool.meta) for tool in (await client.list_tools()).tools}
                assert tools["update_deal"].tier == "high" and tools["takeback_observe"].role == "observe"
                answer = await client.call_tool("takeback_observe", {"resource": DEAL})
                assert answer.structured_content["fields"]["stage"] == "won"
                if mode == "auto":
                    assert (client.server_capabilities.extensions or {})[EXTENSION]["undoTool"] == "takeback_undo"


async def test_a_killed_child_leaves_doubt_and_the_next_call_starts_it_anew(
    pool: asyncpg.Pool, empty_postgres_url: str, tmp_path: Path
) -> None:
    """J7."""
    pid = tmp_path / "pid"
    serve = "runpy.run_module('tests.crm_server', run_name='__main__')"
    script = f"import os, runpy; open({str(pid)!r}, 'w').write(str(os.getpid())); {serve}"
    config = {
        "transport": "mcp",
        "command": sys.executable,
        "args": ["-c", script],
        "env": {"CRM_DATABASE": empty_postgres_url},
    }
    port = await open_port(config, None, ENVIRON)  # type: ignore[arg-type]
    await port.describe(deadline=WAIT_SECONDS)
    in_flight = asyncio.create_task(call(port, "slow", seconds=60, deadline=60))
    at_work = (
        "select count(*) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()"
    )
    await eventually(lambda: pool.fetchval(at_work))
    os.kill(int(pid.read_text()), signal.SIGKILL)
    with pytest.raises(NoAnswer):
        await in_flight
    assert (await call(port, "charge", "ent_2", accountId=1, amount=1)).is_error is False
    seen = await port.observe(None, entry="ent_1", deadline=WAIT_SECONDS)
    assert seen.call is not None and seen.call.outcome == "never"
    await port.close()


async def test_a_nats_server_that_stops_in_the_middle_leaves_doubt(bus: Nats) -> None:
    async def swallow(_message: Any) -> None:
        return None

    await bus.subscribe("tools.black.call", cb=swallow)
    port = await open_port({"transport": "nats", "subject": "tools.black"}, bus, {})
    with pytest.raises(NoAnswer):
        await call(port, "charge", deadline=0.1, accountId=1, amount=1)


@pytest.mark.parametrize("answer", [b"no json", b"[]", b"{}", b'{"content": 3}', b'{"error": 3}'])
async def test_an_answer_that_is_none_leaves_doubt_over_nats(bus: Nats, answer: bytes) -> None:
    async def respond(message: Any) -> None:
        await message.respond(answer)

    await bus.subscribe("tools.odd.call", cb=respond)
    port = await open_port({"transport": "nats", "subject": "tools.odd"}, bus, {})
    with pytest.raises(NoAnswer):
        await call(port, "charge", accountId=1, amount=1)
