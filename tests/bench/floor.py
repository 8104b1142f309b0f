"""The composite floor: the same I/O as a journaled call and nothing else. `python -m tests.bench.floor`.

HTTP in, lock, one group commit, one tool round trip, one group commit, unlock, one JetStream publish, HTTP out, each with as
many bytes as a journaled call sends there. No chain, no projection, no policy, no authority, no schema, no redaction. The
servers' addresses and the numbers of bytes come from the environment.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import deque
from dataclasses import dataclass
from typing import Any

import asyncpg
import orjson
import uvicorn
import uvloop
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from takeback import bus
from takeback.database import driver_url
from tests.bench.tool import SUBJECT

_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class GroupWriter:
    """One connection drains a queue of rows into one insert a commit."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._queue: deque[tuple[str, bytes, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._drain())

    async def write(self, entry: str, body: bytes) -> None:
        """Durable when it returns."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((entry, body, done))
        self._wake.set()
        await done

    async def _drain(self) -> None:
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            group = [self._queue.popleft() for _ in range(min(len(self._queue), 128))]
            await self._connection.execute(
                "insert into floor select * from unnest($1::text[], $2::bytea[])",
                [entry for entry, _, _ in group],
                [body for _, body, _ in group],
            )
            for _, _, done in group:
                done.set_result(None)


class Pipeline:
    """Many callers' Redis commands in one write."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._queue: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, *words: Any) -> Any:
        """The answer to one command."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((words, reply))
        if self._task is None:
            self._task = asyncio.create_task(self._send())
        return await reply

    async def _send(self) -> None:
        while self._queue:
            group, self._queue = self._queue, []
            pipeline = self._redis.pipeline(transaction=False)
            for words, _ in group:
                pipeline.execute_command(*words)
            for (_, reply), value in zip(group, await pipeline.execute(), strict=True):
                reply.set_result(value)
        self._task = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of what a journaled call writes and sends: its two records, its event, its answer."""

    intent: int
    conclusion: int
    event: int
    answer: int

    @classmethod
    def from_environ(cls) -> Sizes:
        """The sizes that `environ` named."""
        return cls(**orjson.loads(os.environ["TAKEBACK_BENCH_SIZES"]))

    def environ(self) -> dict[str, str]:
        """The sizes for the floor's environment."""
        return {"TAKEBACK_BENCH_SIZES": orjson.dumps(self).decode()}


async def main() -> None:
    """Serves until it is killed."""
    sizes = Sizes.from_environ()
    connection = await asyncpg.connect(driver_url(os.environ["TAKEBACK_POSTGRES_URL"]))
    await connection.execute("create table floor (entry text, body bytea)")
    await connection.execute("create index on floor (entry)")
    client = await bus.connect(os.environ["TAKEBACK_NATS_URL"], "floor")
    js = client.jetstream()
    ask = Pipeline(Redis.from_url(os.environ["TAKEBACK_REDIS_URL"], protocol=2))
    writer = GroupWriter(connection)

    async def call(request: Request) -> Response:
        wanted = orjson.loads(await request.body())
        name, token, entry = f"floor:{request.path_params['run']}", secrets.token_hex(16), secrets.token_hex(16)
        while not await ask("SET", name, token, "NX", "PX", 30_000):
            await asyncio.sleep(0.002)
        await writer.write(entry, _filled({"wanted": wanted}, sizes.intent))
        sent = orjson.dumps({"name": wanted["operation"], "arguments": wanted["arguments"]})
        answer = orjson.loads((await client.request(f"{SUBJECT}.call", sent, timeout=30)).data)
        told = {"entry": entry, "wanted": wanted, "result": answer}
        await writer.write(entry, _filled(told, sizes.conclusion))
        await ask("EVAL", _RELEASE, 1, name, token)
        await js.publish("takeback.floor.entry.committed", _filled(told, sizes.event), headers={"Nats-Msg-Id": entry})
        return Response(_filled(told, sizes.answer), media_type="application/json")

    app = Starlette(routes=[Route("/v1/runs/{run}/calls", call, methods=["POST"])])
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, access_log=False, http="httptools", lifespan="off")
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    print(f"ready at http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", flush=True)
    await serving


def _filled(value: dict[str, Any], size: int) -> bytes:
    """*value* as JSON of at least *size* bytes."""
    written = orjson.dumps(value)
    return written[:-1] + b',"more":"' + b"." * max(0, size - len(written) - 10) + b'"}'


if __name__ == "__main__":
    uvloop.run(main())
