"""A thousand clients of one live stream: when the last of them hears that something was taken back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import urlsplit

from examples.client import Caller
from examples.opening import read_notes
from takeback.data_folder import DataFolder
from tests.bench.reversals import add_adventure
from tests.processes import TakebackProcess

CLIENTS = 1_000
_HEARD = b"event: broadcast.interaction_reverted"


async def measure(folder: Path) -> None:
    """Prints the time from the first client that heard `interaction_reverted` to the last, and from the approval."""
    async with TakebackProcess("serve", "--data", str(folder), "--port", "0") as stack:
        data = DataFolder(folder)
        await add_adventure(data)
        campaign = read_notes(folder)["game"]
        open_streams = [await _opened(stack.url, campaign, data.token("gm")) for _ in range(CLIENTS)]
        clients = [asyncio.create_task(_hear(*stream)) for stream in open_streams]
        async with (
            Caller(stack.url, "gm", data.token("gm")) as owner,
            Caller(stack.url, "narrator", data.token("narrator", "agent")) as agent,
        ):
            run = await agent.open_run(campaign, "narrator", model="none", principal="gm")
            arguments = {"adventure": "bench", "topic": "streams", "note": "a note"}
            entry = (await agent.call(run, "table/write_memory", arguments))["entry"]["id"]
            plan = await owner.plan(campaign, entries=[entry])
            began = time.perf_counter()
            await owner.post(f"/v1/plans/{plan['id']}/decision", {"decision": "approve", "digest": plan["digest"]})
            heard = sorted(await asyncio.gather(*clients))
    print(
        f"{len(heard):,} clients heard interaction_reverted: the last {heard[-1] - heard[0]:.2f} s after the first, "
        f"{heard[-1] - began:.2f} s after the approval"
    )


async def _opened(url: str, campaign: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = (
        f"GET /v1/campaigns/{campaign}/stream HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    writer.write(head.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return reader, writer


async def _hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
    """When this client heard it."""
    try:
        while _HEARD not in (line := await reader.readline()):
            assert line, "the stream ended"
        return time.perf_counter()
    finally:
        writer.close()
