"""The MCP door: what is asked, who may, which replica, what is hidden, and what becomes of a client that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import mcp_types as types
import pytest
import pytest_asyncio
from mcp import Client, MCPError

from recorder.mcp_door.changes import Changes
from takeback.extension import EXTENSION
from tests.mcp_lab import ERAS, Era, McpCampaign, McpLab, mcp_lab
from tests.servers import Backend, Databases, Server
from tests.servers_lab.deals import DealServer
from tests.servers_lab.reference import TOOLS, Reference
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
ALLOWED = {"operations": {f"ref/{tool['name']}": "allow" for tool in TOOLS}}
SENT = {"to": "world"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(
    servers: Backend, migrated_databases: Databases, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[McpLab]:
    async with mcp_lab(servers, migrated_databases, valkey_server.url, tmp_path_factory.mktemp("mcp")) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def deals(lab: McpLab) -> DealServer:
    return await lab.deals()


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(lab: McpLab, deals: DealServer) -> McpCampaign:
    return await lab.campaign(deals={"transport": "nats", "subject": deals.subject})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Reference]:
    async with Reference().serving() as reference:
        yield reference


@pytest_asyncio.fixture(loop_scope="module")
async def reference(served: Reference) -> AsyncIterator[Reference]:
    yield served
    served.release.set()  # nobody waits on in it
    served.forget()


@pytest_asyncio.fixture(loop_scope="module")
async def undeclared(lab: McpLab, reference: Reference) -> McpCampaign:
    return await lab.campaign(ALLOWED, ref={"transport": "mcp", "url": reference.url})


def text(result: types.CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, types.TextContent)
    return part.text


def told(result: types.CallToolResult) -> dict[str, Any]:
    """What an error of ours says for programs."""
    assert result.is_error
    return dict((result.meta or {})[EXTENSION])


# --- what is shown, and what becomes of a call ------------------------------------------------------------------------------


async def test_each_call_is_an_entry_as_over_http_with_what_the_client_says_of_it(
    campaign: McpCampaign, deals: DealServer
) -> None:
    """J1, J5, J15: the one hook; interaction, agent and uses come from the request's own `_meta`."""
    said = {"interaction": "turn-1", "agent": "helper", "uses": ["crm://lab/deal/d9"]}
    async with campaign.connect("deals", "2026-07-28") as client:
        result = await client.call_tool("set_stage", {"dealId": "d1", "stage": "won"}, meta={EXTENSION: said})
    assert result.structured_content == {"dealId": "d1"}
    assert EXTENSION not in (result.meta or {}), "tokens and declarations are the recorder's alone"
    (entry,) = await campaign.entries()
    assert (entry["operation"], entry["status"], entry["kind"]) == ("set_stage", "committed", "call")
    assert (entry["interaction"], entry["agent"], entry["undo"]["kind"]) == ("turn-1", "helper", "compensate")
    assert deals.log[entry["id"]] == 1


@pytest.mark.parametrize("era", ERAS)
async def test_all_servers_tools_stand_under_one_address_with_their_servers_name(
    lab: McpLab, deals: DealServer, reference: Reference, era: Era
) -> None:
    """J15, P10: `server__tool`; a server whose name holds the separator is found too."""
    nats = {"transport": "nats", "subject": deals.subject}
    campaign = await lab.campaign(
        {"operations": {"ref/echo": "allow"}}, deals=nats, de__als=nats, ref={"transport": "mcp", "url": reference.url}
    )
    async with campaign.connect(None, era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"deals__set_stage", "de__als__set_stage", "ref__echo"} <= set(names)
        assert len(names) == 2 * len(deals.tools) + len(TOOLS)
        assert text(await client.call_tool("ref__echo", {"text": "hello"})) == "hello"
        await client.call_tool("de__als__set_stage", {"dealId": "d1", "stage": "won"})
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("set_stage", {})
    assert [entry["server"] for entry in await campaign.entries()] == ["ref", "de__als"]


async def test_an_agent_sees_and_calls_only_what_its_allow_list_names(campaign: McpCampaign) -> None:
    """P10."""
    allowed = {"memory": "no", "operations": ["deals/read_deal"]}
    await campaign.owner("PUT", "agents/bot", allowed)
    async with campaign.connect("deals", "2026-07-28") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["read_deal"]
        refused = await client.call_tool("set_stage", {"dealId": "d1", "stage": "won"})
    assert told(refused)["problem"] == "not-authorised"
    assert await campaign.entries() == []


async def test_a_clients_own_key_finds_its_entry_and_forwards_nothing_again(
    campaign: McpCampaign, deals: DealServer
) -> None:
    """contract.md: `_meta[id].idempotencyKey`, whichever replica is asked again."""
    deals.put("d1", amount=1)
    meta = {EXTENSION: {"idempotencyKey": "k1"}}
    for replica in (0, 1):
        async with campaign.connect("deals", ERAS[replica], replica=replica) as client:
            result = await client.call_tool("add_amount", {"dealId": "d1", "amount": 5}, meta=meta)
            assert result.structured_content == {"dealId": "d1"}
    async with campaign.connect("deals", "2026-07-28") as client:
        other = await client.call_tool("add_amount", {"dealId": "d1", "amount": 6}, meta=meta)
    assert told(other)["problem"] == "idempotency-conflict"
    assert deals.effects == 1


async def test_arguments_that_the_schema_does_not_take_are_an_error_in_words(campaign: McpCampaign) -> None:
    """J2: nothing is written or forwarded."""
    async with campaign.connect("deals", "2026-07-28") as client:
        wrong = await client.call_tool("set_stage", {"dealId": 7})
    assert told(wrong) == {"problem": "invalid"} and "dealId" in text(wrong)
    assert await campaign.entries() == []


async def test_the_callers_token_never_reaches_a_tool_server(undeclared: McpCampaign, reference: Reference) -> None:
    """facts.md, MCP; J16."""
    async with undeclared.connect("ref", "2026-07-28") as client:
        await client.call_tool("echo", {"text": "x"})
    assert reference.seen and not any("authorization" in headers for headers in reference.seen)


async def test_the_session_with_a_tool_server_stays_open_and_is_shared(undeclared: McpCampaign) -> None:
    """facts.md, MCP: a fresh session for each call would lose a stateful server's state."""
    counted = []
    for era in (*ERAS, *ERAS):
        async with undeclared.connect("ref", era) as client:
            counted.append(text(await client.call_tool("echo", {"text": era})))
    assert counted == [*ERAS, *ERAS]


async def test_a_tool_server_that_died_is_reached_again_when_it_is_back(lab: McpLab) -> None:
    """J15: the dead session is replaced; meanwhile the call fails, and says that nothing was sent."""
    reference = Reference()
    async with reference.serving():
        port = int(reference.url.split(":")[2].split("/")[0])
        campaign = await lab.campaign(ALLOWED, ref={"transport": "mcp", "url": reference.url})
        async with campaign.connect("ref", "2026-07-28") as client:
            assert text(await client.call_tool("echo", {"text": "1"})) == "1"
    async with campaign.connect("ref", "2026-07-28") as client:
        gone = await client.call_tool("echo", {"text": "2"})
        assert told(gone)["problem"] == "tool-failed" and "nothing was sent" in text(gone)
        async with Reference().serving(port):
            assert text(await client.call_tool("echo", {"text": "3"})) == "3"


# --- asking (P6, S13) -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_asked_says_of_whom_and_its_retry_fetches_the_result_once(
    campaign: McpCampaign, deals: DealServer, era: Era
) -> None:
    """P6, S13: no connection waits; the approval forwards exactly once; after the fetch the same call is a new one."""
    async with campaign.connect("deals", era) as client:
        asked = await client.call_tool("send_mail", SENT)
        assert told(asked)["status"] == "awaiting_approval"
        approval = told(asked)["approval"]
        for part in ("was not forwarded", "olga", approval, "call the tool again"):
            assert part in text(asked)
        assert told(await client.call_tool("send_mail", SENT))["approval"] == approval, "no second question"
    assert deals.effects == 0
    await campaign.decide()
    async with campaign.connect("deals", era, replica=1) as client:
        fetched = await client.call_tool("send_mail", SENT)
        assert (fetched.is_error, fetched.structured_content) == (False, {"sent": True})
        assert deals.effects == 1
        again = await client.call_tool("send_mail", SENT)
        assert told(again)["approval"] != approval
    assert deals.effects == 1
    assert [entry["status"] for entry in await campaign.entries()] == ["committed", "awaiting_approval"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_denied_call_is_an_error_that_names_no_rule(campaign: McpCampaign, deals: DealServer, era: Era) -> None:
    """P6, P10."""
    async with campaign.connect("deals", era) as client:
        await client.call_tool("send_mail", SENT)
        await campaign.decide("deny")
        denied = await client.call_tool("send_mail", SENT)
        assert (told(denied)["problem"], told(denied)["status"]) == ("denied", "denied")
        assert "because" not in text(denied) and "policy" not in text(denied)
        assert told(await client.call_tool("send_mail", SENT))["status"] == "awaiting_approval", "a new call"
    assert deals.effects == 0


class Person:
    """Opens links: `on_link` is done before the client says that its user accepted."""

    def __init__(self, on_link: Any) -> None:
        self.links: list[types.ElicitRequestURLParams] = []
        self._on_link = on_link

    async def __call__(self, _: Any, params: Any) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams), "never a form: a host could fill it in by itself"
        self.links.append(params)
        await self._on_link()
        return types.ElicitResult(action="accept")


async def _nothing() -> None:
    pass


async def test_a_client_that_shows_links_gets_one_and_goes_on_by_itself_once_it_is_approved(
    campaign: McpCampaign, deals: DealServer
) -> None:
    """P6: 2026-07-28 asks again with the sealed state, and the journal, not the client, says that a person agreed."""
    person = Person(campaign.decide)
    async with campaign.connect("deals", "2026-07-28", elicitation_callback=person) as client:
        result = await client.call_tool("send_mail", SENT)
    assert result.structured_content == {"sent": True}
    (entry,) = await campaign.entries()
    assert person.links[0].url == f"{campaign.lab.urls[0]}/console/approvals/{entry['approval']}"
    assert deals.log == {entry["id"]: 1}


async def test_that_a_link_was_opened_is_no_approval(campaign: McpCampaign, deals: DealServer) -> None:
    """P6, facts.md: `accept` says only that the link was opened."""
    person = Person(_nothing)
    async with campaign.connect("deals", "2026-07-28", elicitation_callback=person) as client:
        waits = await client.call_tool("send_mail", SENT)
    assert told(waits)["status"] == "awaiting_approval" and len(person.links) == 1
    assert deals.effects == 0


async def test_a_client_of_2025_11_25_is_sent_the_link_and_fetches_the_result_by_calling_again(
    campaign: McpCampaign, deals: DealServer
) -> None:
    """P6: a request of the server's beside the answer, and no connection that waits for a person."""
    person = Person(campaign.decide)
    async with campaign.connect("deals", "2025-11-25", elicitation_callback=person) as client:
        asked = await client.call_tool("send_mail", SENT)
        assert told(asked)["status"] == "awaiting_approval"
        await eventually(lambda: person.links)
        await eventually(lambda: deals.effects)
        result = await client.call_tool("send_mail", SENT)
    assert result.structured_content == {"sent": True}
    assert person.links[0].elicitation_id == told(asked)["approval"]
    assert deals.effects == 1


async def _first_round(client: Client, arguments: dict[str, Any]) -> types.InputRequiredResult:
    result = await client.session.call_tool("send_mail", arguments, allow_input_required=True)
    assert isinstance(result, types.InputRequiredResult)
    return result


async def test_a_state_that_was_forged_or_is_of_another_call_or_caller_is_refused(
    campaign: McpCampaign, deals: DealServer
) -> None:
    """facts.md: `requestState` is the client's to forge; it is bound to principal, call and expiry, at any replica."""
    links: dict[str, Any] = {"elicitation_callback": Person(_nothing)}
    async with campaign.connect("deals", "2026-07-28", **links) as client:
        first = await _first_round(client, SENT)
        await campaign.decide()
        state = first.request_state
        assert state is not None
        for wrong in (state[:-2] + ("AA" if not state.endswith("AA") else "BB"), "v1.AAAA", "x"):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await client.call_tool("send_mail", SENT, request_state=wrong)
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await client.call_tool("send_mail", {"to": "mars"}, request_state=state)
    async with campaign.connect("deals", "2026-07-28", sub="pete", kind="human", **links) as client:
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await client.call_tool("send_mail", SENT, request_state=state)
    async with campaign.connect("deals", "2026-07-28", replica=1, **links) as client:
        result = await client.call_tool("send_mail", SENT, request_state=state)
    assert result.structured_content == {"sent": True} and deals.effects == 1


async def test_an_approval_of_what_has_changed_meanwhile_forwards_nothing(
    campaign: McpCampaign, deals: DealServer
) -> None:
    """S13: the continuation fails closed."""
    await campaign.owner("PUT", "policy", {"operations": {"deals/set_stage": "ask"}})
    deals.put("d1", stage="new")
    wanted = {"dealId": "d1", "stage": "won"}
    async with campaign.connect("deals", "2026-07-28") as client:
        await client.call_tool("set_stage", wanted)
        deals.put("d1", stage="lost")
        await campaign.decide()
        closed = await client.call_tool("set_stage", wanted)
        assert (told(closed)["problem"], told(closed)["status"]) == ("denied", "expired")
    assert deals.effects == 0


async def test_a_slow_person_uses_up_nothing_of_the_tools_time(campaign: McpCampaign, deals: DealServer) -> None:
    """S13: the deadline starts when the call is forwarded; a retry while it is forwarded waits for it."""
    async with campaign.connect("deals", "2026-07-28") as client:
        await client.call_tool("send_mail", SENT)
        deals.behave("send_mail", "hang")
        await campaign.decide()
        await deals.arrived.wait()
        retry = asyncio.ensure_future(client.call_tool("send_mail", SENT))
        await asyncio.sleep(0)
        deals.release.set()
        assert (await retry).structured_content == {"sent": True}
    assert deals.effects == 1


# --- clients that leave -----------------------------------------------------------------------------------------------------


async def _unheard(progress: float, total: float | None, message: str | None) -> None:
    """The tool tells of no progress."""


@pytest.mark.parametrize(("era", "progress"), [(ERAS[0], None), (ERAS[1], None), (ERAS[1], _unheard)])
async def test_a_client_that_cancels_reaches_the_tool_and_leaves_the_call_in_doubt(
    undeclared: McpCampaign, reference: Reference, era: Era, progress: Any
) -> None:
    """J7, facts.md: a dropped connection (2026-07-28) or a notification (2025-11-25) cancels; nothing is lost."""

    async def concluded() -> bool:
        return [entry["status"] for entry in await undeclared.entries()] == ["in_doubt"]

    async with undeclared.connect("ref", era) as client:
        calling = asyncio.ensure_future(client.call_tool("wait", {}, progress_callback=progress))
        await reference.waiting.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await asyncio.wait_for(reference.cancelled.wait(), 5)
        await eventually(concluded)


async def test_a_2025_client_that_only_drops_its_connection_has_cancelled_nothing(
    undeclared: McpCampaign, reference: Reference
) -> None:
    """MCP 2025-11-25, transports: a disconnect is no cancellation; the call is concluded."""
    token = undeclared.lab.token()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http:
        posting = asyncio.ensure_future(http.post(undeclared.url("ref"), json=body))
        await reference.waiting.wait()
        posting.cancel()
        await asyncio.gather(posting, return_exceptions=True)
    reference.release.set()

    async def concluded() -> bool:
        return [entry["status"] for entry in await undeclared.entries()] == ["committed"]

    await eventually(concluded)
    assert not reference.cancelled.is_set()


# --- changes of the list ----------------------------------------------------------------------------------------------------


class Changed:
    """Hears that the list of tools has changed, in either era."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def __call__(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.heard.set()


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_hears_when_its_tools_change_here_or_at_their_server(
    undeclared: McpCampaign, reference: Reference, era: Era
) -> None:
    """J15: an owner's change is heard through any replica, a tool server's through the session that is open with it."""
    changed = Changed()
    async with (
        _watching() as is_open,
        undeclared.connect("ref", era, message_handler=changed, replica=1) as client,
        AsyncExitStack() as listening,
    ):
        if era == "2026-07-28":  # the stream of 2025-11-25 opens by itself, and says nothing then
            await listening.enter_async_context(client.listen(tools_list_changed=True))
        await is_open.wait()
        for change in (undeclared.owner("PUT", "agents/bot", {"memory": "yes"}), reference.change_list()):
            changed.heard.clear()

            async def heard(change: Any = change) -> bool:
                return changed.heard.is_set()

            await change
            await eventually(heard)


async def test_a_shutdown_ends_the_streams_on_which_changes_are_heard_and_says_so(undeclared: McpCampaign) -> None:
    """MCP 2026-07-28: a stream that ends on purpose ends with its result; the edge ends both eras' when it closes."""
    token, lab = undeclared.lab.token(), undeclared.lab
    meta = {types.PROTOCOL_VERSION_META_KEY: "2026-07-28", types.CLIENT_CAPABILITIES_META_KEY: {}}
    listen = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": "l1", "method": "subscriptions/listen", "params": listen}
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    async with lab.one_more() as (url, edge), httpx.AsyncClient(headers=headers) as http:
        place = f"{url}/mcp/runs/{undeclared.run}"
        async with (
            http.stream("POST", place, json=body, headers=modern) as of_2026,
            http.stream("GET", place) as of_2025,
        ):
            lines = of_2026.aiter_lines()
            while "acknowledged" not in await anext(lines):
                pass
            edge.close()
            rest = [line async for line in lines]
            assert '"id":"l1"' in "".join(rest) and '"result"' in "".join(rest)
            assert [line async for line in of_2025.aiter_lines()] == []


@asynccontextmanager
async def _watching() -> AsyncIterator[asyncio.Event]:
    """Set once a recorder has opened a stream on which changes are heard."""
    is_open, of = asyncio.Event(), Changes.of

    @asynccontextmanager
    async def watched(changes: Changes, *where: Any) -> AsyncIterator[asyncio.Event]:
        async with of(changes, *where) as changed:
            is_open.set()
            yield changed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Changes, "of", watched)
        yield is_open


# --- who may knock, and how -------------------------------------------------------------------------------------------------


async def test_a_stranger_hears_what_everybody_hears_of_what_is_not_there(lab: McpLab, campaign: McpCampaign) -> None:
    """G7: the same bytes."""
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    places = [(campaign.url("deals"), "stranger"), (campaign.url("nobody"), "bot"), (campaign.url() + "x", "bot")]
    answers = []
    async with httpx.AsyncClient() as http:
        for url, sub in places:
            headers = {"authorization": f"Bearer {lab.token(sub)}"}
            answers.append(await http.post(url, json=initialize, headers=headers))
        nobody = await http.post(campaign.url(), json=initialize)
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_process_that_stands_in_for_the_door_says_what_is_wrong_in_the_protocols_words(
    campaign: McpCampaign,
) -> None:
    """J16: the client of `takeback mcp` reads no HTTP; what the door refuses, or that nobody is there, reaches it in words."""
    with pytest.raises((MCPError, ExceptionGroup)) as strange:
        async with campaign.connect("deals", "2025-11-25", "stdio", sub="stranger"):
            pass
    assert "nothing that you may see" in _told_by(strange.value)
    lost = replace(campaign, lab=replace(campaign.lab, urls=["http://127.0.0.1:1"]))
    with pytest.raises((MCPError, ExceptionGroup)) as nobody:
        async with lost.connect("deals", "2025-11-25", "stdio"):
            pass
    assert "is it running?" in _told_by(nobody.value)


def _told_by(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


async def test_what_is_no_message_of_the_protocol_is_refused_in_the_protocols_words(campaign: McpCampaign) -> None:
    """contract.md: bad input changes nothing."""
    headers = {"authorization": f"Bearer {campaign.lab.token()}", "accept": "application/json, text/event-stream"}
    modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    cases: list[tuple[bytes | dict[str, Any] | list[Any], dict[str, str], int, int]] = [
        (b"{", {}, 400, types.PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "jsonrpc": "2.0"}', {}, 400, types.PARSE_ERROR),
        ([listing], {}, 400, types.INVALID_REQUEST),
        ({**listing, "id": None}, {}, 400, types.INVALID_REQUEST),
        ({**listing, "params": []}, {}, 400, types.INVALID_REQUEST),
        ({**listing, "method": "resources/list"}, {}, 200, types.METHOD_NOT_FOUND),
        ({**listing, "method": "tools/call"}, {}, 200, types.INVALID_PARAMS),
        (listing, modern, 400, types.INVALID_PARAMS),
        (listing, {"mcp-protocol-version": "2099-01-01", "mcp-method": "tools/list"}, 400, types.INVALID_PARAMS),
    ]
    async with httpx.AsyncClient(headers=headers) as http:
        for body, more, status, code in cases:
            content: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
            answer = await http.post(campaign.url(), headers=more, **content)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), (body, answer.text)
        assert (
            await http.post(campaign.url(), json={"jsonrpc": "2.0", "method": "notifications/x"})
        ).status_code == 202
        assert (await http.put(campaign.url())).status_code == 405
        assert (await http.delete(campaign.url())).status_code == 204
    assert await campaign.entries() == []
