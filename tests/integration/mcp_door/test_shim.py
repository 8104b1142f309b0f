"""`takeback mcp` as a process of its own: it ends when its client closes the pipe, and answers what was asked until then."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from tests.mcp_lab import McpCampaign
from tests.servers_lab.deals import DealServer

pytestmark = pytest.mark.asyncio(loop_scope="package")
_SECONDS = 20.0
_INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}},
}  # fmt: skip
_INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def _piped(campaign: McpCampaign, *messages: dict[str, Any]) -> tuple[int | None, list[dict[str, Any]], str]:
    """Exit code, answers and standard error of a process whose stdin holds *messages* and ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "takeback", "mcp", "--run", campaign.run, "--url", campaign.lab.urls[0], "--server", "deals",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TAKEBACK_TOKEN": campaign.lab.token()},
    )  # fmt: skip
    try:
        given = "".join(json.dumps(message) + "\n" for message in messages)
        async with asyncio.timeout(_SECONDS):
            out, err = await process.communicate(given.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


async def test_a_client_that_closes_the_pipe_at_once_ends_the_process(campaign: McpCampaign) -> None:
    """J16: stdin at its end is how an MCP client says goodbye."""
    assert await _piped(campaign) == (0, [], "")


async def test_what_was_asked_before_the_pipe_closed_is_answered_and_then_the_process_ends(
    campaign: McpCampaign, deals: DealServer
) -> None:
    """J16: a call under way is not cut off, and the stream that the door holds open for the client keeps nothing up."""
    call = {"name": "set_stage", "arguments": {"dealId": "d1", "stage": "won"}}
    code, answers, err = await _piped(
        campaign, _INITIALIZE, _INITIALIZED, {"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": call}
    )
    assert (code, err) == (0, "")
    assert [answer["id"] for answer in answers] == [1, "last"]
    assert answers[1]["result"]["structuredContent"] == {"dealId": "d1"}
    (entry,) = await campaign.entries()
    assert (entry["status"], deals.log[entry["id"]]) == ("committed", 1)


async def test_a_request_that_was_cancelled_is_not_waited_for(campaign: McpCampaign) -> None:
    """J16: nobody answers what its client has cancelled."""
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    code, answers, err = await _piped(campaign, _INITIALIZE, listing, cancelled)
    assert (code, err) == (0, "")
    assert [answer["id"] for answer in answers if answer["id"] != 2] == [1]
