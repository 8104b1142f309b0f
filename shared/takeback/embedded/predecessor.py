"""The server that an earlier Takeback left on the same folder, when that one was killed outright.

It got its parent's death as a signal and is about to end; two servers on one folder would corrupt it, so the next
start waits for it. A process id alone proves nothing: it may be a zombie in a container whose first process collects no
children, or belong to another program since a restart. So the command line has to name the folder's own path.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from takeback.embedded.errors import EmbeddedServerError

HAS_PROCFS = Path("/proc/self/stat").exists()
_WAIT_SECONDS = 30.0


async def wait_until_gone(
    program: str, pid: int, path: Path, lingers: Callable[[], bool] = lambda: False, *, seconds: float = _WAIT_SECONDS
) -> None:
    """Wait until process *pid* does not run *program* with *path* any more, and nothing of it *lingers*.

    Raises EmbeddedServerError when it is still there after *seconds*.
    """
    end = time.monotonic() + seconds
    while _runs_with(pid, path) or lingers():
        if time.monotonic() > end:
            raise EmbeddedServerError(
                f"{program} still runs on {path} as process {pid}, left by an earlier start. Nothing was started and "
                f"nothing was changed. End it with: kill -INT {pid}"
            )
        await asyncio.sleep(0.005)


def _runs_with(pid: int, path: Path) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX" and str(path).encode() in command
