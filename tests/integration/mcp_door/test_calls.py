"""What the MCP door shows, what becomes of a call through it, and of a client that leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from mcp import MCPError

from takeback.extension import EXTENSION
from tests.integration.mcp_door.conftest import ALLOWED, text, told
from tests.mcp_lab import ERAS, Era, McpCampaign, McpLab
from tests.ports import own_port
from tests.servers_lab.deals import DealServer
from tests.servers_lab.reference import TOOLS, Reference
from tests.waiting import WAIT_SECONDS, eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")


# --- what is shown, and what becomes of a call ---


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
    reference, port = Reference(), own_port()
    async with reference.serving(port):
        campaign = await lab.campaign(ALLOWED, ref={"transport": "mcp", "url": reference.url})
        async with campaign.connect("ref", "2026-07-28") as client:
            assert text(await client.call_tool("echo", {"text": "1"})) == "1"
    async with campaign.connect("ref", "2026-07-28") as client:
        gone = await client.call_tool("echo", {"text": "2"})
        assert told(gone)["problem"] == "tool-failed" and "nothing was sent" in text(gone)
        async with Reference().serving(port):
            assert text(await client.call_tool("echo", {"text": "3"})) == "3"


# --- clients that leave ---


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
        await asyncio.wait_for(reference.cancelled.wait(), WAIT_SECONDS)
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
