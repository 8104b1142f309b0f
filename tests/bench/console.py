"""The console on a long run: how long its pages take to answer, on the whole embedded stack."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from pathlib import Path

import httpx

from examples.client import Caller
from examples.opening import read_notes
from takeback.data_folder import DataFolder
from tests.bench.reversals import add_adventure
from tests.processes import TakebackProcess

ENTRIES, WRITES, AT_ONCE, TIMES = 10_000, 200, 32, 30
LIMIT_MS = 100


async def measure(folder: Path) -> None:
    """Prints the first answer of each of a run's pages, the median and the slowest of the others; the run has 10,000 entries.

    A first answer may have to read what the planner or the notifier had not projected yet when the last call had ended:
    none is ever given on old facts.
    """
    async with TakebackProcess("serve", "--data", str(folder), "--port", "0") as stack:
        data = DataFolder(folder)
        await add_adventure(data)
        campaign = read_notes(folder)["game"]
        run = await _long_run(stack.url, data, campaign)
        async with httpx.AsyncClient(base_url=stack.url, timeout=60, follow_redirects=True) as person:
            sent = {"token": data.token("gm")}
            await person.post("/console/sign-in/token", data=sent, headers={"Sec-Fetch-Site": "same-origin"})
            page = (await person.get(f"/console/runs/{run}")).text
            earlier = re.search(r"\?cursor=(\d+)", page)
            assert earlier is not None
            for name, path in {
                "timeline": f"/console/runs/{run}",
                "timeline, further back": f"/console/runs/{run}?cursor={int(earlier.group(1)) // 2}",
                "what builds on what": f"/console/runs/{run}/graph?skip={ENTRIES - 40}",
                "review": f"/console/runs/{run}/review",
                "campaign": f"/console/campaigns/{campaign}",
                "review queue": f"/console/campaigns/{campaign}/reviews",
                "questions": f"/console/campaigns/{campaign}/questions",
            }.items():
                await _time(person, name, path)


async def _long_run(url: str, folder: DataFolder, campaign: str) -> str:
    """A run of reads, and at its end of writes: the page of the newest entries is the heaviest one."""
    async with Caller(url, "narrator", folder.token("narrator", "agent")) as agent:
        run = await agent.open_run(campaign, "narrator", model="none", principal="gm")
        gate = asyncio.Semaphore(AT_ONCE)

        async def look() -> None:
            async with gate:
                await agent.call(run, "table/look_at_combat", {"adventure": "bench"}, interaction="first")

        await asyncio.gather(*(look() for _ in range(ENTRIES - WRITES)))
        for number in range(WRITES):
            arguments = {"adventure": "bench", "topic": f"topic {number}", "note": "a note"}
            await agent.call(run, "table/write_memory", arguments, interaction=f"turn-{number // 4}")
        return run


async def _time(person: httpx.AsyncClient, name: str, path: str) -> None:
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        answer = await person.get(path)
        times.append((time.perf_counter() - began) * 1e3)
        assert answer.is_success, f"{path}: {answer.status_code}"
    first, *others = times
    median, slowest = statistics.median(others), max(others)
    print(f"{name}: first {first:.1f} ms, then median {median:.1f} ms, slowest {slowest:.1f} ms (limit {LIMIT_MS} ms)")
