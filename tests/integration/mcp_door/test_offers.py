"""Resources and prompts at the MCP door: each read is an entry like that of a declared read, and policy rules it as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import mcp_types as types
import pytest
import pytest_asyncio
from mcp import MCPError

from takeback.extension import EXTENSION
from tests.integration.mcp_door.conftest import told
from tests.integration.mcp_door.test_asking import Person
from tests.mcp_lab import ERAS, Era, McpCampaign, McpLab
from tests.servers_lab.deals import DealServer, deal
from tests.servers_lab.reference import RESOURCES, TOOLS, Reference

pytestmark = pytest.mark.asyncio(loop_scope="package")
TODAY = "ref://notes/today"


@pytest_asyncio.fixture(loop_scope="package")
async def asking(lab: McpLab, reference: Reference) -> McpCampaign:
    """A campaign whose policy asks before anything is read."""
    policy = {"operations": {"ref/resources/read": "ask", "ref/prompts/get": "ask"}}
    return await lab.campaign(policy, ref={"transport": "mcp", "url": reference.url})


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def fresh() -> AsyncIterator[Reference]:
    """A server that a test may change."""
    async with Reference().serving() as reference:
        yield reference


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_read_is_an_entry_and_names_the_resource_that_it_used(undeclared: McpCampaign, era: Era) -> None:
    """J12: a resource and a prompt are journaled; nobody has to allow what the protocol declares a read."""
    async with undeclared.connect("ref", era) as client:
        (content,) = (await client.read_resource(TODAY)).contents
        await client.get_prompt("greet", {"who": "ada"})
    assert isinstance(content, types.TextResourceContents) and "Grüße" in content.text
    read, prompt = await undeclared.entries()
    assert (read["operation"], read["kind"], read["status"]) == ("resources/read", "read", "committed")
    assert read["result"]["contents"][0]["text"] == content.text
    assert (prompt["operation"], prompt["kind"], prompt["status"]) == ("prompts/get", "read", "committed")
    assert prompt["arguments"] == {"name": "greet", "arguments": {"who": "ada"}}


async def test_whoever_has_read_a_resource_is_told_of_when_it_is_taken_back(
    lab: McpLab, deals: DealServer, reference: Reference
) -> None:
    """J12: the resource's address is the record that it uses, so that a plan names its readers."""
    deals.put("d1", stage="new")
    servers = {"transport": "nats", "subject": deals.subject}, {"transport": "mcp", "url": reference.url}
    campaign = await lab.campaign(deals=servers[0], ref=servers[1])
    async with campaign.connect("deals", "2026-07-28") as client:
        await client.call_tool("set_stage", {"dealId": "d1", "stage": "won"})
    wanted = {"agent": "bot", "model": "m1", "principal": "pete"}
    later = await lab.client.ok("POST", f"/v1/campaigns/{campaign.id}/runs", wanted, sub="bot", kind="agent")
    reader = McpCampaign(lab, campaign.id, later["id"])
    async with reader.connect("ref", "2026-07-28") as client:
        await client.read_resource(deal("d1"))
    (write,), (read,) = await campaign.entries(), await reader.entries()
    plan = await campaign.owner("POST", "plans", {"entries": [write["id"]]})
    assert [(one["entry"], one["resource"]) for one in plan["readSince"]] == [(read["id"], deal("d1"))]


@pytest.mark.parametrize("era", ERAS)
async def test_a_read_that_is_asked_waits_for_a_person_and_is_fetched_once(
    asking: McpCampaign, reference: Reference, era: Era
) -> None:
    """P6, S13: as a call; a read has no result that is an error, so the client hears a JSON-RPC error."""
    async with asking.connect("ref", era) as client:
        with pytest.raises(MCPError) as asked:
            await client.read_resource(TODAY)
        assert "was not forwarded" in asked.value.message and "olga" in asked.value.message
        assert asked.value.data[EXTENSION]["status"] == "awaiting_approval"
        with pytest.raises(MCPError) as again:
            await client.read_resource(TODAY)
        assert again.value.data == asked.value.data, "no second question"
        assert reference.read == []
        await asking.decide()
        assert (await client.read_resource(TODAY)).contents
        assert reference.read == [TODAY]
        with pytest.raises(MCPError) as new:
            await client.read_resource(TODAY)
        assert new.value.data[EXTENSION]["approval"] != asked.value.data[EXTENSION]["approval"]


async def test_a_client_that_shows_links_reads_on_by_itself_once_it_is_approved(asking: McpCampaign) -> None:
    """P6: in 2026-07-28 a resource and a prompt may want input like a call."""
    person = Person(asking.decide)
    async with asking.connect("ref", "2026-07-28", elicitation_callback=person) as client:
        assert (await client.get_prompt("greet", {"who": "ada"})).messages
    assert len(person.links) == 1


async def test_a_denied_read_reaches_nobody(lab: McpLab, reference: Reference) -> None:
    """P1, P10."""
    policy = {"operations": {"ref/resources/read": "deny"}}
    campaign = await lab.campaign(policy, ref={"transport": "mcp", "url": reference.url})
    async with campaign.connect("ref", "2026-07-28") as client:
        with pytest.raises(MCPError) as denied:
            await client.read_resource(TODAY)
    assert denied.value.data[EXTENSION]["problem"] == "denied" and "policy" not in denied.value.message
    assert reference.read == []


@pytest.mark.parametrize("era", ERAS)
async def test_the_servers_own_error_reaches_the_client_as_it_came(undeclared: McpCampaign, era: Era) -> None:
    """J2: an error that the server answered is `failed`, and the caller gets it; nothing is in doubt after a read."""
    async with undeclared.connect("ref", era) as client:
        with pytest.raises(MCPError) as missing:
            await client.read_resource("ref:nowhere")
        with pytest.raises(MCPError) as wrong:
            await client.list_resources(cursor="none")
    assert (missing.value.code, missing.value.message) == (-32002, "Resource not found")
    assert missing.value.data == {"uri": "ref:nowhere"}
    assert wrong.value.code != types.METHOD_NOT_FOUND
    (entry,) = await undeclared.entries()
    assert (entry["status"], entry["result"]["error"]["code"]) == ("failed", -32002)


@pytest.mark.parametrize("era", ERAS)
async def test_an_allow_list_hides_what_it_leaves_out(undeclared: McpCampaign, reference: Reference, era: Era) -> None:
    """P10, J16: neither shown nor read; the prompts that it names are there."""
    await undeclared.owner("PUT", "agents/bot", {"memory": "no", "operations": ["ref/echo", "ref/prompts/get"]})
    async with undeclared.connect("ref", era) as client:
        able = client.server_capabilities
        assert able.resources is None and able.prompts is not None
        for ask in (client.list_resources, client.list_resource_templates):
            with pytest.raises(MCPError) as hidden:
                await ask()
            assert hidden.value.code == types.METHOD_NOT_FOUND
        with pytest.raises(MCPError) as refused:
            await client.read_resource(TODAY)
        assert refused.value.data[EXTENSION]["problem"] == "not-authorised"
        of_resource = types.ResourceTemplateReference(uri="ref://notes/{day}")
        with pytest.raises(MCPError):
            await client.complete(of_resource, {"name": "day", "value": "t"})
        assert (await client.list_prompts()).prompts
    assert reference.read == [] and await undeclared.entries() == []
    logged = (await undeclared.owner("GET", "security-log"))["items"]
    assert [(item["sub"], item["what"]) for item in logged] == [("bot", "use this operation")]


async def test_where_all_servers_are_shown_there_are_tools_alone(undeclared: McpCampaign) -> None:
    """J15: the address of a resource does not say whose it is."""
    async with undeclared.connect(None, "2026-07-28") as client:
        able = client.server_capabilities
        assert able.tools is not None and able.resources is None and able.prompts is None
        with pytest.raises(MCPError) as nowhere:
            await client.read_resource(TODAY)
        assert nowhere.value.code == types.METHOD_NOT_FOUND


@pytest.mark.parametrize("server", ["ref", None])
async def test_a_read_is_no_tool(undeclared: McpCampaign, reference: Reference, server: str | None) -> None:
    """J15: it is not listed among the tools, and cannot be called as one."""
    async with undeclared.connect(server, "2026-07-28") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert len(names) == len(TOOLS)
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("resources/read" if server else "ref__resources/read", {"uri": TODAY})
    assert "Unknown tool" in unknown.value.message and reference.read == []


async def test_a_tool_of_that_name_keeps_it(lab: McpLab, fresh: Reference) -> None:
    """J15: what a server calls ``resources/read`` is its tool, and its resources are not offered."""
    fresh.tools = [{"name": "resources/read", "inputSchema": {"type": "object"}}]
    campaign = await lab.campaign(ref={"transport": "mcp", "url": fresh.url})
    async with campaign.connect("ref", "2026-07-28") as client:
        assert client.server_capabilities.resources is None
        assert [tool.name for tool in (await client.list_tools()).tools] == ["resources/read"]
        asked = await client.call_tool("resources/read", {})
        assert told(asked)["status"] == "awaiting_approval"
    assert fresh.read == []


async def test_a_server_without_tools_can_be_read(lab: McpLab, fresh: Reference) -> None:
    """J15."""
    del fresh.server._request_handlers["tools/list"]
    campaign = await lab.campaign(ref={"transport": "mcp", "url": fresh.url})
    async with campaign.connect("ref", "2026-07-28") as client:
        assert (await client.list_tools()).tools == []
        assert [one.uri for one in (await client.list_resources()).resources] == [RESOURCES[0]["uri"]]


async def test_a_manifest_leaves_the_reads_as_they_are_and_cannot_name_one(lab: McpLab, reference: Reference) -> None:
    """J15: behind a manifest a server's resources are read as without one."""
    manifest = {"server": "ref", "takeback": 1, "operations": {"sum": {"reads": "true"}}}
    server = {"transport": "mcp", "url": reference.url}
    campaign = await lab.campaign(ref={**server, "manifest": manifest})
    async with campaign.connect("ref", "2025-11-25") as client:
        assert (await client.read_resource(TODAY)).contents
        assert (await client.list_prompts()).prompts
    named = {"server": "ref", "takeback": 1, "operations": {"resources/read": {"reads": "true"}}}
    path = f"/v1/campaigns/{campaign.id}/servers/ref"
    refused = await lab.client("PUT", path, {**server, "manifest": named})
    assert refused.status_code == 422 and "resources/read" in refused.text


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_is_away_is_said_to_be(lab: McpLab, era: Era) -> None:
    """J2: a list has an error in words; a read that had no answer changed nothing, and failed."""
    async with Reference().serving() as gone:
        campaign = await lab.campaign(ref={"transport": "mcp", "url": gone.url})
        async with campaign.connect("ref", era) as client:
            assert (await client.list_resources()).resources
    async with campaign.connect("ref", era) as client:
        with pytest.raises(MCPError) as listed:
            await client.list_resources()
        with pytest.raises(MCPError) as read:
            await client.read_resource(TODAY)
    assert gone.url in listed.value.message and "othing was" in read.value.message
    assert read.value.data[EXTENSION]["problem"] in ("tool-failed", "tool-unreachable")


async def test_params_that_are_none_are_refused_and_nothing_is_sent(
    undeclared: McpCampaign, reference: Reference
) -> None:
    """J3: bad input is clear, journaled nowhere and forwarded to nobody."""
    asked = {
        "resources/read": {"uri": 7},
        "prompts/get": {},
        "resources/list": {"cursor": 7},
        "completion/complete": {},
    }
    for method, params in asked.items():
        answer = await _posted(undeclared, method, params)
        assert answer["error"]["code"] == types.INVALID_PARAMS, (method, answer)
    assert reference.read == [] and await undeclared.entries() == []


async def test_many_readers_share_the_server(undeclared: McpCampaign, reference: Reference) -> None:
    """J15: each gets its own answer."""

    async def read(number: int) -> str:
        (content,) = (await client.read_resource(f"ref://notes/{number}")).contents
        assert isinstance(content, types.TextResourceContents)
        return content.text

    async with undeclared.connect("ref", "2026-07-28") as client:
        texts = await asyncio.gather(*(read(number) for number in range(20)))
    assert [text.endswith(f"ref://notes/{number}") for number, text in enumerate(texts)] == [True] * 20
    assert sorted(reference.read) == sorted(f"ref://notes/{number}" for number in range(20))


async def _posted(campaign: McpCampaign, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The answer to a message that no client of the SDK would send."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with httpx.AsyncClient() as http:
        headers = {"authorization": f"Bearer {campaign.lab.token()}", "mcp-protocol-version": "2025-11-25"}
        return dict((await http.post(campaign.url("ref"), json=body, headers=headers)).json())
