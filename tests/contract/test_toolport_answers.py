"""What the port makes of an answer, whatever it is, in both revisions of MCP over HTTP."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp_types import HEADER_MISMATCH
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from recorder.toolport import NoAnswer, Outcome, ToolRefused, Unsupported
from takeback.extension import UndoRequest
from tests.contract.odd_server import Answered, Odd, mcp_port
from tests.contract.test_toolport import DEAL, call, http
from tests.waiting import WAIT_SECONDS

Ask = Callable[[Answered], Awaitable[Outcome]]


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def ask(request: pytest.FixtureRequest) -> Ask:
    async def asked(answer: Answered) -> Outcome:
        async with http(Odd(answer, request.param)) as url:
            port = await mcp_port(url, {})
            try:
                return await call(port, "t")
            finally:
                await port.close()

    return asked


@pytest.mark.parametrize(
    "answer",
    [
        {"content": "no list"},
        {},
        PlainTextResponse("hello"),
        PlainTextResponse("bad gateway", 502),
        PlainTextResponse("overloaded", 503),
        Response("{", media_type="application/json"),
        Response(status_code=202),
        Response(status_code=409),
    ],
)
async def test_an_answer_that_is_none_leaves_doubt(ask: Ask, answer: Response | dict[str, Any]) -> None:
    """J7: it ran, or it did not."""
    with pytest.raises(NoAnswer):
        await ask(answer)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429])
async def test_a_status_that_says_not_processed_is_a_refusal(ask: Ask, status: int) -> None:
    with pytest.raises(ToolRefused) as refused:
        await ask(PlainTextResponse("no", status))
    assert refused.value.status == status


async def test_a_refused_status_is_a_refusal_whatever_code_its_body_has(ask: Ask) -> None:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no session"}}
    with pytest.raises(ToolRefused, match="no session") as refused:
        await ask(JSONResponse(body, 401))
    assert refused.value.status == 401


async def test_an_error_of_the_server_itself_leaves_doubt(ask: Ask) -> None:
    """J7: a tool that crashed may have crashed after its effect."""
    for code in (-32000, -32001, -32603):
        with pytest.raises(NoAnswer):
            await ask({"error": {"code": code, "message": "oops"}})


async def test_a_result_that_breaks_its_own_output_schema_still_counts(ask: Ask) -> None:
    """J2: the tool ran; what it answered is recorded as it is."""
    outcome = await ask(
        {"content": [], "structuredContent": {"unexpected": None}, "later": True, "resultType": "complete"}
    )
    assert outcome.result["structuredContent"] == {"unexpected": None}
    assert outcome.meta is None


async def test_an_answer_at_the_end_of_a_stream_is_the_answer(ask: Ask) -> None:
    """What a server tells before is for whoever listens, and nobody does here."""
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    result = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}

    def told(number: int) -> Response:
        messages = (progress, {"jsonrpc": "2.0", "id": number, "result": result})
        events = "".join(f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n" for message in messages)
        return Response(events, media_type="text/event-stream")

    outcome = await ask(told)
    assert outcome.result["content"] == result["content"]


@pytest.mark.parametrize(
    "headers",
    [
        [("x-policy", "a" * 12_000)],
        [(f"x-{number}", "1") for number in range(200)],
        [("content-type", "application/json; x*")],
    ],
    ids=["long", "many", "odd"],
)
async def test_an_answer_is_taken_whatever_headers_it_comes_with(ask: Ask, headers: list[tuple[str, str]]) -> None:
    """J7: the tool ran, and what it answered is there."""

    def told(number: int) -> Response:
        answer = JSONResponse({"jsonrpc": "2.0", "id": number, "result": {"content": [], "resultType": "complete"}})
        for name, value in headers:
            answer.headers[name] = value
        return answer

    assert (await ask(told)).is_error is False


@pytest.mark.parametrize("events", [": nothing\n\n", "data: {\n\n", "data: []\n\n"])
async def test_a_stream_that_ends_without_an_answer_leaves_doubt(ask: Ask, events: str) -> None:
    """J7."""
    with pytest.raises(NoAnswer):
        await ask(PlainTextResponse(events, media_type="text/event-stream"))


class Mirroring(Odd):
    """A server that runs nothing before an argument is repeated in a header, as its list says."""

    def __init__(self) -> None:
        super().__init__({"content": [], "resultType": "complete"}, "2026-07-28")
        self.heard: list[str | None] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if headers.get("mcp-method") != "tools/call":
            await super().__call__(scope, receive, send)
            return
        self.heard.append(headers.get("mcp-param-account"))
        request = json.loads((await receive())["body"])
        missing = {"error": {"code": HEADER_MISMATCH, "message": "Mcp-Param-Account is missing"}}
        answer = self._result(request, missing if self.heard[-1] is None else self._answer)
        answer.status_code = 400 if self.heard[-1] is None else 200
        await answer(scope, receive, send)

    def _respond(self, request: dict[str, Any]) -> Response:
        if request.get("method") != "tools/list":
            return super()._respond(request)
        schema = {"type": "object", "properties": {"account": {"type": "string", "x-mcp-header": "Account"}}}
        hints = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        return self._result(request, {"tools": [{"name": "t", "inputSchema": schema}], **hints})


async def test_arguments_that_a_server_wants_in_headers_are_repeated_there_once_it_has_said_so() -> None:
    """J1: the server has run nothing when it asks for them, so the call goes on."""
    server = Mirroring()
    async with http(server) as url:
        port = await mcp_port(url, {})
        for entry in ("ent_1", "ent_2"):
            assert (await call(port, "t", entry, account="a1")).is_error is False
        await port.close()
    assert server.heard == [None, "a1", "a1"]


async def test_a_definition_is_kept_exactly_and_a_server_without_undo_says_so() -> None:
    async with http(Odd({})) as url:
        port = await mcp_port(url, {})
        described = await port.describe(deadline=WAIT_SECONDS)
        assert described.operations[0].definition["new"] == 1
        assert described.operations[0].declaration.declared is False
        with pytest.raises(Unsupported):
            await port.observe(DEAL, deadline=WAIT_SECONDS)
        with pytest.raises(Unsupported):
            await port.undo(UndoRequest(compensation_token="token", idempotency_key="ent_1"), deadline=WAIT_SECONDS)
        await port.close()
