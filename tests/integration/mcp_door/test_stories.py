"""Things that happened to people, through the MCP door: S1, S2, S9, S11 (S13 is in test_asking.py)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import mcp_types as types
import pytest
import pytest_asyncio

from takeback.database import driver_url
from takeback.extension import EXTENSION
from tests.crm_server import ROWS, SCHEMA
from tests.mcp_lab import McpCampaign, McpLab
from tests.servers import Databases
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")
DEAL = "D-881"
STAGES = "select stage, title from deals where id = 'D-881'"


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def crm_url(databases: Databases) -> AsyncIterator[str]:
    """The database of a CRM, with a deal in it."""
    url = await asyncio.to_thread(lambda: databases.create(empty=True))
    yield driver_url(url)
    await asyncio.to_thread(databases.drop, url)


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def crm(crm_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(crm_url)
    await connection.execute(SCHEMA + ROWS)
    yield connection
    await connection.close()


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def campaign(lab: McpLab, crm: asyncpg.Connection, crm_url: str) -> McpCampaign:
    """A campaign with the CRM's tool server, which is made with the SDK and started by the recorder."""
    command = {"command": sys.executable, "args": ["-m", "tests.crm_server"], "env": {"CRM_DATABASE": crm_url}}
    return await lab.campaign(crm={"transport": "mcp", **command})


async def _plan(campaign: McpCampaign) -> dict[str, Any]:
    plan: dict[str, Any] = await campaign.owner("POST", "plans", {"run": campaign.run})
    return plan


def _text(result: types.CallToolResult) -> str:
    return " ".join(part.text for part in result.content if isinstance(part, types.TextContent))


async def test_what_a_sub_agent_did_several_edits_deep_comes_back_in_one_plan_whatever_the_agent_says_of_it(
    campaign: McpCampaign, crm: asyncpg.Connection
) -> None:
    """S1, S9, S11: entries of the same run; the journal says what can be taken back; own later edits are no conflict."""
    before = await crm.fetchrow(STAGES)
    impossible = {"agent": "helper", "undo": {"kind": "none"}, "effect": None}
    async with campaign.connect("crm", "2025-11-25") as parent, campaign.connect(None, "2026-07-28") as helper:
        tools = [tool.name for tool in (await parent.list_tools()).tools]
        assert "update_deal" in tools and not [name for name in tools if "takeback" in name or "undo" in name]
        await parent.call_tool("update_deal", {"dealId": DEAL, "stage": "one"})
        for stage in ("two", "three"):
            done = await helper.call_tool(
                "crm__update_deal", {"dealId": DEAL, "stage": stage, "title": stage}, meta={EXTENSION: impossible}
            )
            assert EXTENSION not in (done.meta or {})
    entries = await campaign.entries()
    assert [entry["agent"] for entry in entries] == ["bot", "helper", "helper"]
    plan = await _plan(campaign)
    assert [step["entry"] for step in plan["steps"]] == [entry["id"] for entry in reversed(entries)]
    assert [step["conflict"] for step in plan["steps"]] == [None, None, None]
    assert plan["notReversible"] == plan["unresolved"] == []
    wanted = {"decision": "approve", "digest": plan["digest"], "reason": "wrong deal"}
    await campaign.lab.client.ok("POST", f"/v1/plans/{plan['id']}/decision?wait=20", wanted)

    async def reverted() -> bool:
        return {entry["status"] for entry in await campaign.entries() if entry["kind"] == "call"} == {"reverted"}

    await eventually(reverted)
    assert await crm.fetchrow(STAGES) == before


async def test_a_payment_whose_answer_was_lost_is_in_doubt_and_the_agents_second_try_is_asked(lab: McpLab) -> None:
    """S2: never failed, never sent twice by itself; the question says why; looking at the tool server settles it."""
    deals = await lab.deals()
    deals.knows_keys = False
    campaign = await lab.campaign(deals={"transport": "nats", "subject": deals.subject})
    deals.behave("pay", "lose")
    async with campaign.connect("deals", "2026-07-28") as client:
        lost = await client.call_tool("pay", {"amount": 5})
        assert lost.is_error and "Do not call again" in _text(lost)
        again = await client.call_tool("pay", {"amount": 5})
    first, second = await campaign.entries()
    assert (first["status"], second["status"]) == ("in_doubt", "awaiting_approval")
    assert (again.meta or {})[EXTENSION]["entry"] == second["id"]
    assert "not known" in _text(again), "the question says why"
    assert deals.effects == 1
    deals.knows_keys = True

    async def settled() -> bool:
        return bool((await campaign.entries())[0]["status"] == "committed")

    await eventually(settled)
    assert deals.effects == 1
