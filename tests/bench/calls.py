"""A journaled call as a share of the composite floor: one caller, and 64 callers in 64 campaigns."""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import httpx

from takeback import bus
from takeback.database import driver_url
from tests.bench.floor import Sizes
from tests.bench.load import Measured, Target, run
from tests.bench.recorder import Recorder
from tests.bench.tool import SUBJECT
from tests.processes import TakebackProcess

ROUNDS = 5
CALLERS = 64


async def measure(folder: Path, seconds: float) -> None:
    """Prints both shares; *seconds* is the length of one of the rounds, which take turns."""
    async with AsyncExitStack() as stack:
        recorder = await Recorder.started(folder, stack)
        await stack.enter_async_context(TakebackProcess(recorder.nats.tools_url, module="tests.bench.tool"))
        runs = await recorder.runs(CALLERS, {"transport": "nats", "subject": SUBJECT})
        sizes = await _sizes(recorder, runs[0])
        print(f"  a call's bytes, the floor's too: {sizes}")
        floor_environ = sizes.environ() | {
            "TAKEBACK_POSTGRES_URL": recorder.postgres.url,
            "TAKEBACK_NATS_URL": recorder.nats.url,
            "TAKEBACK_REDIS_URL": recorder.valkey.url,
        }
        floor = await stack.enter_async_context(TakebackProcess(module="tests.bench.floor", environ=floor_environ))
        of_floor = [_target(floor.url, recorder.token, run) for run in runs]
        of_takeback = [_target(recorder.url, recorder.token, run) for run in runs]
        shares = []
        for label, callers in (("c1", 1), (f"c{CALLERS}", CALLERS)):
            await run(of_floor[:callers], seconds / 2)
            await run(of_takeback[:callers], seconds / 2)
            rounds = [
                (await run(of_floor[:callers], seconds), await run(of_takeback[:callers], seconds))
                for _ in range(ROUNDS)
            ]
            _tell(label, rounds)
            shares.append(f"{label} {statistics.median(ours.rate / bare.rate for bare, ours in rounds):.0%}")
        print(f"share of the composite floor: {', '.join(shares)}")


async def _sizes(recorder: Recorder, run_id: str) -> Sizes:
    """How much one call writes and sends."""
    target = _target(recorder.url, recorder.token, run_id)
    client = await bus.connect(recorder.nats.url, "bench")
    events = await client.subscribe("takeback.*.entry.committed")
    await bus.settle(client)
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {target.token}"}) as http:
        wanted = {"server": "bench", "operation": "touch", "arguments": {"id": target.record, "n": 1}}
        answer = (await http.post(target.url, json=wanted)).raise_for_status()
    event = await events.next_msg(timeout=10)
    await client.close()
    connection = await asyncpg.connect(driver_url(recorder.postgres.url))
    size = "select octet_length(body) from recorder.records where type = $1"
    records = [await connection.fetchval(size, type_) for type_ in ("entry.intended", "entry.committed")]
    await connection.close()
    return Sizes(*records, len(event.data), len(answer.content))


def _target(url: str, token: str, run_id: str) -> Target:
    return Target(f"{url}/v1/runs/{run_id}/calls", token, run_id)


def _tell(label: str, rounds: list[tuple[Measured, Measured]]) -> None:
    for name, index in (("floor", 0), ("takeback", 1)):
        picked = [pair[index] for pair in rounds]
        rate, p50, p99 = (
            statistics.median(values) for values in zip(*((m.rate, m.p50, m.p99) for m in picked), strict=True)
        )
        print(f"  {label:>4} {name:<9} {rate:8.0f} calls/s   p50 {p50:7.2f} ms   p99 {p99:7.2f} ms")
