"""`make conformance`: every shipped manifest at its real server, on scratch data; ends with how many passed and failed."""

import asyncio
import sys
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from recorder.conformance import Tally
from recorder.conformance.command import at_server
from tests.real_servers.servers import SERVERS, checked


async def main(wanted: list[str]) -> int:
    """Exercise the manifests in *wanted*, or all; the number that failed."""
    tally, missing = Tally(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted or SERVERS:
            place = Path(folder) / name
            place.mkdir()
            try:
                async with SERVERS[name](place) as config:
                    tally.add(f"manifests/{name}.yaml", await at_server(config, checked(name)))
            except pytest.skip.Exception as reason:
                missing.append(f"manifests/{name}.yaml was not exercised: {reason}")
    console = Console()
    for line in missing:
        console.print(line)
    tally.show(console)
    return tally.failed


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main(sys.argv[1:])) else 0)
