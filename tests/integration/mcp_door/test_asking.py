"""Calls that are asked, at the MCP door: by link or in words, and the retry that fetches the result (P6, S13)."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from takeback.extension import EXTENSION
from tests.integration.mcp_door.conftest import SENT, text, told
from tests.mcp_lab import ERAS, Era, McpCampaign
from tests.servers_lab.deals import DealServer
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_asked_says_of_whom_and_its_retry_fetches_the_result_once(
    campaign: McpCampaign, deals: DealServer, era: Era
) -> None:
    """P6, S13: no connection waits; the approval forwards exactly once; after the fetch the same call is a new one."""
    async with campaign.connect("deals", era) as client:
        asked = await client.call_tool("send_mail", SENT)
        assert told(asked)["status"] == "awaiting_approval"
        approval = told(asked)["approval"]
        for part in ("was not forwarded", "olga", approval, "make the same call again"):
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


@pytest.mark.parametrize("previewed", [False, True])
async def test_a_replica_that_remembers_a_laxer_policy_gives_the_answer_of_a_call_that_was_asked_elsewhere(
    campaign: McpCampaign, deals: DealServer, previewed: bool
) -> None:
    """S13, J17: it forwards nothing again, and does not call the preview stale that the call itself has made so."""
    deals.put("d1", stage="new")
    wanted = {"dealId": "d1", "stage": "won"}
    async with campaign.connect("deals", "2026-07-28", replica=1) as elsewhere:
        for stage in ("a", "b"):
            await elsewhere.call_tool("set_stage", {"dealId": "d1", "stage": stage})
        await campaign.owner("PUT", "policy", {"operations": {"deals/set_stage": "ask"}})
        meta = None
        if previewed:
            of = {"server": "deals", "operation": "set_stage", "arguments": wanted}
            path = f"/v1/runs/{campaign.run}/previews"
            shown = await campaign.lab.client.ok("POST", path, of, sub="bot", kind="agent")
            meta = {EXTENSION: {"preview": shown["id"]}}
        async with campaign.connect("deals", "2026-07-28") as client:
            asked = await client.call_tool("set_stage", wanted, meta=meta)
        assert told(asked)["status"] == "awaiting_approval"
        await campaign.decide()
        fetched = await elsewhere.call_tool("set_stage", wanted, meta=meta)
    assert not fetched.is_error, fetched
    assert deals.effects == 3


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
