"""A journaled call as a share of the composite floor: one caller, and 64 callers in 64 campaigns."""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import httpx

from takeback import bus
from takeback.auth import issue_token
from takeback.database import driver_url, migrate, service_url
from takeback.embedded import EmbeddedNats, EmbeddedPostgres, EmbeddedValkey
from takeback.keys import ensure_keys
from takeback.stack import provision
from tests.bench.floor import Sizes
from tests.bench.load import Measured, Target, run
from tests.bench.tool import SUBJECT
from tests.processes import TakebackProcess

ROUNDS = 3
CALLERS = 64


async def measure(folder: Path, seconds: float) -> None:
    """Prints both shares; *seconds* is the length of one of the rounds, which take turns."""
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "postgres"))
        nats = await stack.enter_async_context(EmbeddedNats(folder / "nats"))
        valkey = await stack.enter_async_context(EmbeddedValkey(folder / "valkey"))
        keys = folder / "keys"
        ensure_keys(keys)
        passwords = {"TAKEBACK_RECORDER_PASSWORD": "bench"}
        await migrate(postgres.url, passwords)
        await provision(nats.url)
        servers = {"TAKEBACK_NATS_URL": nats.url, "TAKEBACK_REDIS_URL": valkey.url, "TAKEBACK_KEYS_DIR": str(keys)}
        environ = servers | {"TAKEBACK_POSTGRES_URL": service_url(postgres.url, "recorder", passwords)}
        await stack.enter_async_context(TakebackProcess(nats.tools_url, module="tests.bench.tool"))
        recorder = await stack.enter_async_context(TakebackProcess("serve", "recorder", "--port", "0", environ=environ))
        token = issue_token(keys / "token.pem", "bench", "human")
        runs = await _open(recorder.url, token, CALLERS)
        sizes = await _sizes(_target(recorder.url, token, runs[0]), postgres.url, nats.url)
        print(f"  a call's bytes, the floor's too: {sizes}")
        floor_environ = servers | sizes.environ() | {"TAKEBACK_POSTGRES_URL": postgres.url}
        floor = await stack.enter_async_context(TakebackProcess(module="tests.bench.floor", environ=floor_environ))
        of_floor = [_target(floor.url, token, run) for run in runs]
        of_takeback = [_target(recorder.url, token, run) for run in runs]
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


async def _open(url: str, token: str, count: int) -> list[str]:
    """A campaign, its tool server and an open run for each caller."""
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30) as http:
        runs = []
        for number in range(count):
            campaign = await _ok(http, "POST", "/v1/campaigns", {"name": f"bench {number}"})
            server = {"transport": "nats", "subject": SUBJECT}
            await _ok(http, "PUT", f"/v1/campaigns/{campaign['id']}/servers/bench", server)
            wanted = {"agent": "bot", "model": "none", "principal": "bench"}
            runs.append((await _ok(http, "POST", f"/v1/campaigns/{campaign['id']}/runs", wanted))["id"])
        return runs


async def _sizes(target: Target, postgres: str, nats: str) -> Sizes:
    """How much one call writes and sends."""
    client = await bus.connect(nats, "bench")
    events = await client.subscribe("takeback.*.entry.committed")
    await client.flush()
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {target.token}"}) as http:
        wanted = {"server": "bench", "operation": "touch", "arguments": {"id": target.record, "n": 1}}
        answer = (await http.post(target.url, json=wanted)).raise_for_status()
    event = await events.next_msg(timeout=10)
    await client.close()
    connection = await asyncpg.connect(driver_url(postgres))
    size = "select octet_length(body) from recorder.records where type = $1"
    records = [await connection.fetchval(size, type_) for type_ in ("entry.intended", "entry.committed")]
    await connection.close()
    return Sizes(*records, len(event.data), len(answer.content))


async def _ok(http: httpx.AsyncClient, method: str, path: str, body: object) -> dict[str, str]:
    response = await http.request(method, path, json=body)
    response.raise_for_status()
    answer: dict[str, str] = response.json()
    return answer


def _target(url: str, token: str, run_id: str) -> Target:
    return Target(f"{url}/v1/runs/{run_id}/calls", token, run_id)


def _tell(label: str, rounds: list[tuple[Measured, Measured]]) -> None:
    for name, index in (("floor", 0), ("takeback", 1)):
        picked = [pair[index] for pair in rounds]
        rate, p50, p99 = (
            statistics.median(values) for values in zip(*((m.rate, m.p50, m.p99) for m in picked), strict=True)
        )
        print(f"  {label:>4} {name:<9} {rate:8.0f} calls/s   p50 {p50:7.2f} ms   p99 {p99:7.2f} ms")
