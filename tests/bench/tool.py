"""A tool server that does nothing, on the bus: what is measured is the way to it. `python -m tests.bench.tool URL`."""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

import orjson
import uvloop

from takeback import bus
from takeback.extension import EXTENSION

SUBJECT = "tools.bench"
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["id", "n"],
}
WRITE = {
    "tier": "low",
    "versioned": True,
    "carriesBefore": True,
    "resource": "bench://record/{id}",
    "undo": {"kind": "compensate", "via": "api", "window": "P7D"},
}
_DEFINITION = {
    "name": "touch",
    "description": "Changes nothing.",
    "inputSchema": SCHEMA,
    "_meta": {EXTENSION: WRITE},
}
_DESCRIPTION = {
    "serverInfo": {"name": "bench", "version": "1"},
    "capabilities": {"extensions": {EXTENSION: {"version": 1, "undoTool": "undo", "observeTool": "observe"}}},
    "tools": [_DEFINITION],
}


def declared(arguments: dict[str, Any], version: int) -> dict[str, Any]:
    """What a write that does nothing says of what it would have done."""
    effect = {
        "resource": f"bench://record/{arguments['id']}",
        "before": {"version": str(version - 1), "fields": {"n": 0}},
        "version": str(version),
        "changes": [{"field": "n", "old": 0, "new": arguments["n"]}],
    }
    undo = {"kind": "compensate", "via": "api", "compensationToken": f"t{version}", "ifVersion": str(version)}
    return {"undo": undo, "effect": effect}


async def main(url: str) -> None:
    """Serves until it is killed."""
    client = await bus.connect(url, "bench tool")
    versions = itertools.count(1)

    async def call(message: object) -> None:
        arguments = orjson.loads(message.data)["arguments"]  # type: ignore[attr-defined]
        answer = {
            "content": [],
            "structuredContent": {"n": arguments["n"]},
            "isError": False,
            "_meta": {EXTENSION: declared(arguments, next(versions))},
        }
        await message.respond(orjson.dumps(answer))  # type: ignore[attr-defined]

    async def describe(message: object) -> None:
        await message.respond(orjson.dumps(_DESCRIPTION))  # type: ignore[attr-defined]

    await client.subscribe(f"{SUBJECT}.call", cb=call)
    await client.subscribe(f"{SUBJECT}.describe", cb=describe)
    await bus.settle(client)
    print("ready at http://none", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
