"""Resources and prompts at the MCP door, when the server or the client is not as it should be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import mcp_types as types
import pytest
import pytest_asyncio
from mcp.shared.inbound import encode_header_value

from takeback.extension import EXTENSION
from tests.integration.mcp_door.conftest import told
from tests.mcp_lab import ERAS, Era, McpCampaign, McpLab
from tests.servers_lab.deals import DealServer
from tests.servers_lab.hostile import MODERN, Hostile
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")
READ = "resources/read"
URI = "x://a"
CONTENT = {"uri": URI, "text": "t"}
_CACHED = '"ttlMs":0,"cacheScope":"private"'


ONE = pytest.mark.parametrize("hostile", ERAS[:1], indirect=True)
"""For what waits for a deadline: the era of the server makes no difference to that."""


@pytest_asyncio.fixture(loop_scope="package", params=ERAS)
async def hostile(request: pytest.FixtureRequest) -> AsyncIterator[Hostile]:
    async with Hostile().serving() as hostile:
        if request.param == "2025-11-25":
            hostile.error("server/discover", {"code": -32601, "message": "Method not found"})
        yield hostile


@pytest_asyncio.fixture(loop_scope="package")
async def attacked(lab: McpLab, hostile: Hostile) -> McpCampaign:
    policy = {"operations": {"bad/look": "allow"}}
    return await lab.campaign(policy, bad={"transport": "mcp", "url": hostile.url})


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("method", "odd"), [(READ, "9" * 30), (READ, '"\\u0000"'), ("tools/call", '"\\u0000"')])
async def test_an_answer_that_cannot_be_kept_is_said_to_be(
    attacked: McpCampaign, hostile: Hostile, method: str, odd: str, era: Era
) -> None:
    """J2: the call ran and its entry says so; its caller hears why there is no result."""
    hostile.answers[method] = f'"result":{{"resultType":"complete",{_CACHED},"contents":[],"content":[],"odd":{odd}}}'
    params = {"uri": URI} if method == READ else {"name": "look"}
    answer = await _posted(attacked, method, params, era)
    told = answer["error"]["message"] if method == READ else answer["result"]["content"][0]["text"]
    assert "cannot be passed on" in told
    (entry,) = await attacked.entries()
    assert (entry["status"], entry["result"]) == ("committed", None)


@pytest.mark.parametrize("era", ERAS)
async def test_a_list_that_cannot_be_passed_on_is_an_error(attacked: McpCampaign, hostile: Hostile, era: Era) -> None:
    """J15: in a result, and in an error."""
    hostile.answers["resources/list"] = (
        f'"result":{{"resultType":"complete",{_CACHED},"resources":[],"odd":{"9" * 40}}}'
    )
    hostile.answers["prompts/list"] = f'"error":{{"code":{"9" * 40},"message":"m"}}'
    for method in ("resources/list", "prompts/list"):
        answer = await _posted(attacked, method, {}, era)
        assert "cannot be passed on" in answer["error"]["message"]


async def test_a_result_with_a_member_called_error_is_a_result(attacked: McpCampaign, hostile: Hostile) -> None:
    """G11: what the client gets and what its entry says are one."""
    hostile.result(READ, MODERN | {"contents": [CONTENT], "error": "boom"})
    assert (await _posted(attacked, READ, {"uri": URI}))["result"]["contents"] == [CONTENT]
    (entry,) = await attacked.entries()
    assert entry["status"] == "committed"


@pytest.mark.parametrize("method", [READ, "resources/list"])
async def test_what_a_server_wants_of_the_user_is_not_passed_on(
    attacked: McpCampaign, hostile: Hostile, method: str
) -> None:
    """P6: a link that a client is shown here is the recorder's own, and so is the state that goes with it."""
    asked = {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "m", "url": "http://elsewhere.example"},
    }
    wanting = {"resultType": "input_required", "requestState": "theirs", "inputRequests": {"a": asked}}
    hostile.result(method, MODERN | wanting | {"contents": [], "resources": []})
    answer = await _posted(attacked, method, {"uri": URI} if method == READ else {}, "2026-07-28")
    assert "error" in answer or answer["result"]["resultType"] == "complete"


async def test_a_tool_that_is_made_to_look_like_a_read_is_a_tool(lab: McpLab, hostile: Hostile) -> None:
    """J9, J15: what a server calls ``resources/read`` is its tool, whatever else its definition says."""
    hostile.tools = [{"name": READ, "method": READ, "inputSchema": {"type": "object"}}]
    campaign = await lab.campaign(bad={"transport": "mcp", "url": hostile.url})
    listed = await _posted(campaign, "tools/list", {})
    assert [tool["name"] for tool in listed["result"]["tools"]] == [READ]
    assert (await _posted(campaign, READ, {"uri": URI}))["error"]["code"] == types.METHOD_NOT_FOUND
    called = await _posted(campaign, "tools/call", {"name": READ, "arguments": {}})
    assert called["result"]["_meta"][EXTENSION]["status"] == "awaiting_approval"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("completion/complete", {"ref": {"type": []}}),
        ("completion/complete", {"ref": {"type": {}}, "argument": 7}),
        ("completion/complete", {"ref": []}),
        ("resources/list", {"cursor": {}}),
        (READ, {"uri": None}),
        (READ, {"uri": URI, "arguments": {}}),
        (READ, {"uri": URI, "meta": {}}),
        (READ, {"uri": URI, "requestState": "forged"}),
        (READ, {"uri": URI, "requestState": 7}),
        (READ, {"uri": URI, "requestState": [[]]}),
        ("prompts/get", {"name": "a", "arguments": {"b": 7}}),
        ("prompts/get", {"name": "a", "arguments": []}),
    ],
)
async def test_odd_params_are_refused(
    attacked: McpCampaign, hostile: Hostile, method: str, params: dict[str, Any]
) -> None:
    """J3: with a JSON-RPC error, and nothing is sent or journaled."""
    for era in ERAS:
        answer = await _posted(attacked, method, params, era)
        assert answer["error"]["code"] in (types.INVALID_PARAMS, types.METHOD_NOT_FOUND, types.HEADER_MISMATCH)
    assert hostile.of(method) == [] and await attacked.entries() == []


@pytest.mark.parametrize("wanted", [[], {}, None, 7.5])
async def test_a_cancellation_of_nothing_is_no_matter(attacked: McpCampaign, wanted: Any) -> None:
    """J15: a notification is owed no answer."""
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": wanted}}
    assert (await _sent(attacked, body, **{"mcp-session-id": "links.x"})).status_code == 202


async def test_nothing_that_a_client_says_of_its_request_reaches_the_server(
    attacked: McpCampaign, hostile: Hostile
) -> None:
    """J18: neither under the name on the wire nor under the one that a model has for it."""
    said = {EXTENSION: {"idempotencyKey": "mine"}, "progressToken": "mine"}
    hostile.result("resources/list", MODERN | {"resources": []})
    await _posted(attacked, "resources/list", {"meta": said, "_meta": said})
    (sent,) = hostile.of("resources/list")
    assert "mine" not in json.dumps(sent.get("_meta"))


@pytest.mark.parametrize("change", ["close", "pause"])
async def test_a_run_that_is_not_open_asks_the_server_for_no_list(
    attacked: McpCampaign, hostile: Hostile, change: str
) -> None:
    """J16: nothing is forwarded for it, reads or lists."""
    await attacked.lab.client.ok("POST", f"/v1/runs/{attacked.run}/{change}")
    answer = await _posted(attacked, "resources/list", {})
    assert "Nothing was forwarded" in answer["error"]["message"]
    assert hostile.of("resources/list") == []


async def test_whoever_may_not_call_in_a_run_asks_for_no_list_in_it(attacked: McpCampaign, hostile: Hostile) -> None:
    """G7, P10: another agent, and a member whose run it is not."""
    await attacked.owner("PUT", "agents/other", {"memory": "no"})
    await attacked.owner("PUT", "members/mia", {"role": "member"})
    for sub, kind in (("other", "agent"), ("mia", "human")):
        answer = await _posted(attacked, "resources/list", {}, token=attacked.lab.token(sub, kind))
        assert "error" in answer, (sub, answer)
    assert hostile.of("resources/list") == []


async def test_a_long_or_odd_address_is_read_or_refused(attacked: McpCampaign, hostile: Hostile) -> None:
    """J12: each read that was sent has an entry."""
    hostile.result(READ, MODERN | {"contents": [CONTENT]})
    odd = [
        "",
        " ",
        "x://" + "a" * 100_000,
        "x://" + "ü" * 1400,
        "x://\u2028\r\n",
        "{x}",
        "x://%",
        "../../etc",
        "=?base64?x?=",
    ]
    for uri in odd:
        for era in ERAS:
            answer = await _posted(attacked, READ, {"uri": uri}, era)
            assert "result" in answer or "error" in answer
    assert len(await attacked.entries()) >= len(hostile.of(READ)) > len(odd)


async def test_an_approved_read_whose_result_cannot_be_kept_is_fetched_as_such(lab: McpLab, hostile: Hostile) -> None:
    """P6, J2: on whichever replica it is fetched, and however often."""
    policy = {"operations": {f"bad/{READ}": "ask"}}
    campaign = await lab.campaign(policy, bad={"transport": "mcp", "url": hostile.url})
    hostile.answers[READ] = f'"result":{{"resultType":"complete",{_CACHED},"contents":[],"odd":"\\u0000"}}'
    await _posted(campaign, READ, {"uri": URI})
    await campaign.decide()
    fetched = await _posted(campaign, READ, {"uri": URI}, replica=1)
    assert "cannot be passed on" in fetched["error"]["message"]
    assert len(hostile.of(READ)) == 1
    again = await _posted(campaign, READ, {"uri": URI})
    assert again["error"]["data"][EXTENSION]["status"] == "awaiting_approval"


async def test_progress_that_is_no_number_breaks_no_stream(attacked: McpCampaign, hostile: Hostile) -> None:
    """J15."""
    hostile.result(READ, MODERN | {"contents": [CONTENT]})
    hostile.progress = '{"progressToken":%s,"progress":NaN,"message":"\\u0000"}'
    body = {"jsonrpc": "2.0", "id": 1, "method": READ, "params": {"uri": URI, "_meta": {"progressToken": "p"}}}
    answer = await _sent(attacked, body, accept="text/event-stream, application/json")
    assert answer.status_code == 200 and "contents" in answer.text


@ONE
async def test_a_read_whose_server_dies_or_is_silent_ends(attacked: McpCampaign, hostile: Hostile) -> None:
    """J7: it changed nothing, so it failed."""
    hostile.answers[READ] = "die"
    assert "error" in await _posted(attacked, READ, {"uri": URI})
    assert "error" in await _posted(attacked, "resources/list", {"uri": URI})
    hostile.answers[READ] = "hang"
    assert "error" in await _posted(attacked, READ, {"uri": URI})
    assert {entry["status"] for entry in await attacked.entries()} == {"failed"}


async def test_a_state_of_a_read_is_of_that_read_alone(lab: McpLab, hostile: Hostile) -> None:
    """P6."""
    policy = {"operations": {f"bad/{READ}": "ask", "bad/look": "ask", "bad/prompts/get": "ask"}}
    campaign = await lab.campaign(policy, bad={"transport": "mcp", "url": hostile.url})
    hostile.result(READ, MODERN | {"contents": [CONTENT]})
    era: Era = "2026-07-28"
    read = (await _posted(campaign, READ, {"uri": URI}, era, links=True))["result"]["requestState"]
    call = (await _posted(campaign, "tools/call", {"name": "look"}, era, links=True))["result"]["requestState"]
    for method, params, state in (
        (READ, {"uri": URI}, call),
        (READ, {"uri": "x://b"}, read),
        ("tools/call", {"name": "look"}, read),
        ("tools/call", {"name": "look", "arguments": {"uri": URI}}, read),
        ("prompts/get", {"name": "a"}, read),
    ):
        answer = await _posted(campaign, method, {**params, "requestState": state}, era, links=True)
        assert answer["error"]["data"] == {"reason": "invalid_request_state"}, method
    assert hostile.of(READ) == hostile.of("tools/call") == []


async def test_over_plain_http_a_read_is_the_same_call(attacked: McpCampaign, hostile: Hostile) -> None:
    """J1."""
    hostile.result(READ, MODERN | {"contents": [CONTENT]})
    path = f"/v1/runs/{attacked.run}/calls"
    for uri, status in ((URI, 200), ("", 200), ("x" * 5000, 200), (7, 422)):
        body = {"server": "bad", "operation": READ, "arguments": {"uri": uri}}
        answer = await attacked.lab.client("POST", path, body, sub="bot", kind="agent")
        assert answer.status_code == status, (uri, answer.text)
    hostile.error(READ, {"code": 5, "message": "no"})
    body = {"server": "bad", "operation": READ, "arguments": {"uri": URI}}
    assert (await attacked.lab.client("POST", path, body, sub="bot", kind="agent")).status_code == 502


async def test_a_read_that_was_taken_from_the_allow_list_meanwhile_is_neither_sent_nor_fetched(
    lab: McpLab, hostile: Hostile
) -> None:
    """P10: at the decision and at the fetching."""
    policy = {"operations": {f"bad/{READ}": "ask"}}
    campaign = await lab.campaign(policy, bad={"transport": "mcp", "url": hostile.url})
    hostile.result(READ, MODERN | {"contents": [CONTENT]})
    await _posted(campaign, READ, {"uri": URI})
    await campaign.owner("PUT", "agents/bot", {"memory": "no", "operations": ["bad/look"]})
    await campaign.decide()

    async def settled() -> bool:
        return [entry["status"] for entry in await campaign.entries()] != ["awaiting_approval"]

    await eventually(settled)
    assert hostile.of(READ) == []
    told = await _posted(campaign, READ, {"uri": URI})
    assert told["error"]["data"][EXTENSION] | {"entry": ""} == {"entry": "", "problem": "denied", "status": "expired"}
    assert hostile.of(READ) == []


@ONE
@pytest.mark.parametrize("era", ERAS)
async def test_a_dropped_or_cancelled_read_has_one_concluded_entry(
    attacked: McpCampaign, hostile: Hostile, era: Era
) -> None:
    """J7."""
    hostile.answers[READ] = "hang"
    for number, meta in enumerate(({}, {"progressToken": 1}), start=1):
        waiting = asyncio.create_task(_posted(attacked, READ, {"uri": URI, "_meta": meta}, era))
        await eventually(partial(_has_been_asked, hostile, number))
        waiting.cancel()

    async def concluded() -> bool:
        return [entry["status"] for entry in await attacked.entries()] == ["failed", "failed"]

    await eventually(concluded)


async def test_headers_that_name_another_read_are_refused(attacked: McpCampaign, hostile: Hostile) -> None:
    """J16: what a proxy in front was shown is what is read."""
    prefix, era = "io.modelcontextprotocol", {"mcp-protocol-version": "2026-07-28"}
    said: dict[str, Any] = {f"{prefix}/protocolVersion": "2026-07-28", f"{prefix}/clientCapabilities": {}}
    said[f"{prefix}/clientInfo"] = {"name": "c", "version": "1"}
    body = {"jsonrpc": "2.0", "id": 1, "method": READ, "params": {"uri": URI, "_meta": said}}
    named = [
        {"mcp-name": "x://b", "mcp-method": READ},
        {"mcp-name": URI, "mcp-method": "tools/call"},
        {"mcp-method": READ},
    ]
    for headers in named:
        answer = await _sent(attacked, body, **era, **headers)
        assert answer.json()["error"]["code"] == types.HEADER_MISMATCH, answer.text
    for odd in (None, 1.5, [], {}, True):
        assert (await _sent(attacked, body | {"id": odd})).status_code == 400
    assert hostile.of(READ) == []


async def test_a_stranger_finds_nothing(attacked: McpCampaign, hostile: Hostile) -> None:
    """G7."""
    strangers = [("nobody", "human"), ("nobot", "agent"), ("service", "service")]
    for sub, kind in strangers:
        for method, params in ((READ, {"uri": URI}), ("resources/list", {}), ("completion/complete", {})):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = await _sent(attacked, body, attacked.lab.token(sub, kind))  # type: ignore[arg-type]
            assert answer.status_code == 404, answer.text
    assert hostile.of(READ) == hostile.of("resources/list") == []


async def test_a_server_that_no_longer_offers_what_is_pinned_is_asked_about(
    attacked: McpCampaign, hostile: Hostile
) -> None:
    """J15: until it is registered anew, and then there is nothing to read on either replica."""
    hostile.capabilities = {"tools": {}}
    assert (await _posted(attacked, "resources/list", {}))["error"]["code"] == types.METHOD_NOT_FOUND
    asked = await _posted(attacked, READ, {"uri": URI})
    assert asked["error"]["data"][EXTENSION]["status"] == "awaiting_approval"
    await attacked.owner("PUT", "servers/bad", {"transport": "mcp", "url": hostile.url})
    for replica in (0, 1):
        gone = await _posted(attacked, READ, {"uri": URI}, replica=replica)
        assert gone["error"]["code"] == types.METHOD_NOT_FOUND


async def test_a_read_whose_entry_is_refused_says_that_it_was_made_and_gives_no_answer(
    attacked: McpCampaign, hostile: Hostile
) -> None:
    """J2, J12: its one entry is written after it, so what is said is that the server was asked."""
    hostile.result(READ, MODERN | {"contents": [CONTENT]})
    wanted = {"agent": "bot", "model": "m1", "principal": "pete"}
    other = await attacked.lab.client.ok("POST", f"/v1/campaigns/{attacked.id}/runs", wanted, sub="bot", kind="agent")
    named = {"uri": URI, "_meta": {EXTENSION: {"interaction": "i1"}}}
    await _posted(McpCampaign(attacked.lab, attacked.id, other["id"]), READ, named)
    refused = await _posted(attacked, READ, named)
    told = refused["error"]["message"]
    assert "Another run owns this interaction" in told and "nothing was changed" in told and "forwarded" not in told
    assert len(hostile.of(READ)) == 2 and await attacked.entries() == []


async def test_a_key_of_a_read_is_one_entry_on_every_replica(attacked: McpCampaign, hostile: Hostile) -> None:
    """J17: ten at once may ask the server each, and all are answered with one entry; after that nobody asks again."""
    hostile.result(READ, MODERN | {"contents": [CONTENT]})
    keyed = {"uri": URI, "_meta": {EXTENSION: {"idempotencyKey": "k1"}}}
    answers = await asyncio.gather(*(_posted(attacked, READ, keyed, replica=number % 2) for number in range(10)))
    assert all("result" in answer for answer in answers) and len(await attacked.entries()) == 1
    asked = len(hostile.of(READ))
    assert "result" in await _posted(attacked, READ, keyed) and len(hostile.of(READ)) == asked


@ONE
async def test_what_is_too_large_for_the_journal_reaches_its_caller_and_stops_no_plan(
    lab: McpLab, hostile: Hostile, deals: DealServer
) -> None:
    """J2, J11: the entry says what it does not hold; who comes after, in any run of the campaign, is served as ever."""
    policy = {"operations": {"bad/look": "allow"}}
    on_bus = {"transport": "nats", "subject": deals.subject}
    campaign = await lab.campaign(policy, bad={"transport": "mcp", "url": hostile.url}, deals=on_bus)
    large = "x" * 9_000_000
    hostile.result(READ, MODERN | {"contents": [CONTENT | {"text": large}]})
    hostile.result("tools/call", {"content": [{"type": "text", "text": large}]})
    assert (await _posted(campaign, READ, {"uri": URI}))["result"]["contents"][0]["text"] == large
    assert (await _posted(campaign, "tools/call", {"name": "look"}))["result"]["content"][0]["text"] == large
    for entry in await campaign.entries():
        assert (entry["status"], entry["result"]) == ("committed", None)
        assert [item["field"] for item in entry["unresolved"]][-1:] == ["result"], entry["unresolved"]
    deals.put("d1", stage="new")
    async with campaign.connect("deals", ERAS[1]) as client:
        await client.call_tool("set_stage", {"dealId": "d1", "stage": "won"})
    write = (await campaign.entries())[-1]
    plan = await campaign.owner("POST", "plans", {"entries": [write["id"]]})
    assert [step["entry"] for step in plan["steps"]] == [write["id"]]


async def test_a_record_that_is_too_large_to_be_kept_asks_before_it_is_changed(lab: McpLab, deals: DealServer) -> None:
    """J4: what could not be given back is no snapshot."""
    campaign = await lab.campaign(deals={"transport": "nats", "subject": deals.subject})
    deals.put("d1", stage="x" * 2_000_000)
    async with campaign.connect("deals", ERAS[1]) as client:
        asked = await client.call_tool("set_stage", {"dealId": "d1", "stage": "won"})
    assert told(asked)["status"] == "awaiting_approval" and deals.effects == 0


def _has_been_asked(hostile: Hostile, times: int) -> bool:
    return len(hostile.of(READ)) == times


async def _posted(
    campaign: McpCampaign,
    method: str,
    params: dict[str, Any],
    era: Era = "2025-11-25",
    token: str | None = None,
    links: bool = False,
    replica: int = 0,
) -> dict[str, Any]:
    """The answer to a message that no client of the SDK would send."""
    headers = {"mcp-protocol-version": era}
    if era == "2026-07-28":
        prefix = "io.modelcontextprotocol"
        said = {
            f"{prefix}/protocolVersion": era,
            f"{prefix}/clientCapabilities": {"elicitation": {"url": {}}} if links else {},
        }
        params = {
            **params,
            "_meta": {**params.get("_meta", {}), **said, f"{prefix}/clientInfo": {"name": "c", "version": "1"}},
        }
        named = params.get("uri" if method == READ else "name")
        headers |= {"mcp-method": method, "mcp-name": encode_header_value(named) if isinstance(named, str) else ""}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await _sent(campaign, body, token, replica, **headers)
    assert answer.status_code < 500, answer.text
    return dict(answer.json())


async def _sent(
    campaign: McpCampaign, body: Any, token: str | None = None, replica: int = 0, **headers: str
) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as http:
        authorization = {"authorization": f"Bearer {token or campaign.lab.token()}"}
        return await http.post(campaign.url("bad", replica), json=body, headers=authorization | headers)
