"""`make bench`: prints each measurement beside the floor that was taken in the same run. Seconds a round as an argument."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import uvloop

from tests.bench import calls, console, door, reminders, reversals, streams


async def main(seconds: float) -> None:
    """All measurements, one after the other, on servers of their own."""
    with tempfile.TemporaryDirectory(prefix="takeback-bench-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        print("A journaled call beside the same I/O without anything else")
        await calls.measure(path / "calls", seconds)
        print("The MCP door beside an empty pass-through of the MCP SDK")
        await door.measure(path / "door", seconds / 2)
        print("The whole stack")
        await reversals.measure(path / "stack")
        await streams.measure(path / "streams")
        print(f"Reminders with {reminders.OPEN:,} windows open")
        await reminders.measure(path / "reminders")
        print(f"The console on a run of {console.ENTRIES:,} entries")
        await console.measure(path / "console")


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0))
