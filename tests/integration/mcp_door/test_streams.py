"""Changes that are heard at the MCP door, and who may knock there, and how."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp import MCPError

from recorder.mcp_door.changes import Changes
from tests.mcp_lab import ERAS, Era, McpCampaign, McpLab
from tests.servers_lab.reference import Reference
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")


# --- changes of the list ---


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
        await reference.bus.listened.wait()
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


# --- who may knock, and how ---


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
