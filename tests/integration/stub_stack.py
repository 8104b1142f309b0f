"""`takeback` with one service that only counts, for tests of how the stack lives and dies (run as a module)."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import asyncpg
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from takeback import cli, database, stack
from takeback.service import Service


class Counter:
    """Counts its starts in PostgreSQL, as its own role; its stop is told in a file, for the test to see."""

    name = "recorder"
    background = ()

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._url = environ["TAKEBACK_POSTGRES_URL"]
        self._told = Path(environ["TAKEBACK_KEYS_DIR"]).parent / "stopped"
        self.app = Starlette(routes=[Route("/v1/starts", self._starts), Route("/v1/stream", self._stream)])

    async def start(self) -> None:
        self._told.unlink(missing_ok=True)
        self._connection = await asyncpg.connect(self._url)
        await self._connection.execute("insert into recorder.starts default values")

    async def stop(self) -> None:
        await self._connection.execute("select 1")  # the servers are still there
        await self._connection.close()
        self._told.write_text("yes")

    async def not_ready(self) -> dict[str, str]:
        return {}

    async def _starts(self, _: Request) -> Response:
        return JSONResponse(await self._connection.fetchval("select count(*) from recorder.starts"))

    async def _stream(self, request: Request) -> Response:
        async def until_gone() -> AsyncIterator[bytes]:
            yield b": open\n\n"
            while (await request.receive())["type"] != "http.disconnect":
                continue

        return StreamingResponse(until_gone(), media_type="text/event-stream")


async def build(environ: Mapping[str, str]) -> Counter:
    return Counter(environ)


if __name__ == "__main__":
    stack.find_services = lambda: [Service("recorder", build)]
    stack.find_examples = list
    database.services = lambda: {"recorder": "tests.integration.stub_migrations"}
    cli.app()
