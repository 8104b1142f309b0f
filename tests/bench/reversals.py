"""On the whole embedded stack: how long it takes to start, and from a person's approval to every screen."""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path

import asyncpg

from examples.client import Answer, Caller
from examples.opening import read_notes
from takeback.data_folder import DataFolder
from takeback.database import driver_url
from tests.processes import TakebackProcess

TIMES = 40


async def measure(folder: Path) -> None:
    """Prints the warm start, and the median from approve to `interaction_reverted` at a client of the live stream."""
    async with TakebackProcess("serve", "--data", str(folder), "--port", "0"):
        pass
    began = time.perf_counter()
    async with TakebackProcess("serve", "--data", str(folder), "--port", "0") as stack:
        print(f"warm start to ready: {time.perf_counter() - began:.2f} s")
        data = DataFolder(folder)
        await add_adventure(data)
        await _approve_to_reverted(data, stack.url, read_notes(folder)["game"])


async def add_adventure(folder: DataFolder) -> None:
    """Lay out the adventure that the calls are about, past every service of ours."""
    """An adventure for the game's tools to write into."""
    urls = folder.urls()
    assert urls is not None
    connection = await asyncpg.connect(driver_url(urls.postgres))
    await connection.execute("insert into game.adventures (id, title, episode) values ('bench', 'Bench', 'The gate')")
    await connection.execute("insert into game.combats (adventure) values ('bench')")
    await connection.close()


async def _approve_to_reverted(folder: DataFolder, url: str, campaign: str) -> None:
    times = []
    async with (
        Caller(url, "gm", folder.token("gm")) as owner,
        Caller(url, "narrator", folder.token("narrator", "agent")) as agent,
        owner.listening(campaign) as heard,
    ):
        run = await agent.open_run(campaign, "narrator", model="none", principal="gm")
        for number in range(TIMES):
            arguments = {"adventure": "bench", "topic": f"topic {number}", "note": "a note"}
            entry = (await agent.call(run, "table/write_memory", arguments))["entry"]["id"]
            plan = await owner.plan(campaign, entries=[entry])
            began = time.perf_counter()
            decided = {"decision": "approve", "digest": plan["digest"]}
            await owner.post(f"/v1/plans/{plan['id']}/decision", decided)
            await heard.first("broadcast.interaction_reverted", partial(_is_about, entry))
            times.append((time.perf_counter() - began) * 1e3)
    print(f"approve to interaction_reverted at a client: median {statistics.median(times):.1f} ms of {TIMES}")


def _is_about(entry: str, data: Answer) -> bool:
    return bool(data["invocationId"] == entry)
