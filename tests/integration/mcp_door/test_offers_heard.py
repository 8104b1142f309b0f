"""Changes of what a server offers beside its tools, as they are heard at the MCP door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import mcp_types as types
import pytest
from mcp import Client

from tests.mcp_lab import ERAS, Era, McpCampaign, McpLab
from tests.servers_lab.reference import Reference
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_hears_when_the_list_of_resources_changes(
    undeclared: McpCampaign, reference: Reference, era: Era
) -> None:
    """J15: as for tools, and only what it is about."""
    async with _listening(undeclared, era) as (_, heard):
        changed = partial(_changed, reference, heard)
        await eventually(changed)
    assert types.ToolListChangedNotification not in heard


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_hears_on_when_the_server_was_registered_anew(
    undeclared: McpCampaign, reference: Reference, era: Era
) -> None:
    """J15: an open stream goes on with the server as it is now."""
    async with _listening(undeclared, era) as (client, heard):
        changed = partial(_changed, reference, heard)
        await eventually(changed, 6)
        anew = {"transport": "mcp", "url": reference.url, "headers": {"X-Anew": "1"}}
        await undeclared.owner("PUT", "servers/ref", anew)
        assert (await client.read_resource("ref://notes/today")).contents
        told, last = types.ToolListChangedNotification, types.ResourceListChangedNotification
        await eventually(lambda: told in heard and last in heard[heard.index(told) :])  # that it was registered
        heard.clear()
        await eventually(changed, 6)


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_hears_on_when_the_server_was_started_anew(lab: McpLab, era: Era) -> None:
    """J15."""
    reference = Reference()
    async with AsyncExitStack() as stack:
        async with Reference().serving() as first:
            campaign = await lab.campaign(ref={"transport": "mcp", "url": first.url})
            client, heard = await stack.enter_async_context(_listening(campaign, era))
            await first.bus.listened.wait()
        await stack.enter_async_context(reference.serving(int(first.url.split(":")[2].split("/")[0])))
        assert (await client.read_resource("ref://notes/today")).contents

        changed = partial(_changed, reference, heard)
        await eventually(changed, 6)


@asynccontextmanager
async def _listening(campaign: McpCampaign, era: Era) -> AsyncIterator[tuple[Client, list[type]]]:
    """A client of the server that hears of its lists, and the kinds of what it has heard."""
    heard: list[type] = []

    async def on_message(message: object) -> None:
        heard.append(type(message))

    async with campaign.connect("ref", era, message_handler=on_message) as client, AsyncExitStack() as listening:
        if era == "2026-07-28":
            await listening.enter_async_context(client.listen(resources_list_changed=True, tools_list_changed=True))
        yield client, heard


async def _changed(reference: Reference, heard: list[type]) -> bool:
    """Whether it was heard that the resources have changed, which they do once more."""
    await reference.change_resources()
    return types.ResourceListChangedNotification in heard
