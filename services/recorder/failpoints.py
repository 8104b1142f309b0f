"""Places where a fault test may kill this process, as a crash would (issue 2, Must hold).

`TAKEBACK_FAILPOINT` names one: `after-intent`, or `after-intent:3` for the third time it is reached. Nothing happens unless
`TAKEBACK_TEST=1`, so that no setting of a real installation can arm one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Final, Literal, get_args

Failpoint = Literal[
    "before-intent",
    "after-intent",
    "after-effect",
    "before-conclusion",
    "before-publish",
    "at-claim",
]
FAILPOINTS: Final[tuple[Failpoint, ...]] = get_args(Failpoint)


def armed_in(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """The failpoint that *environ* arms and the how-many-th reaching of it counts; raises ValueError for an unknown one."""
    wanted = environ.get("TAKEBACK_FAILPOINT", "")
    if environ.get("TAKEBACK_TEST") != "1" or not wanted:
        return None
    name, _, times = wanted.partition(":")
    if name not in FAILPOINTS:
        raise ValueError(f"TAKEBACK_FAILPOINT names {name!r}; there are {', '.join(FAILPOINTS)}")
    return name, int(times or 1)


_armed = armed_in(os.environ)
_reached = 0


def reach(name: Failpoint) -> None:
    """Dies here by SIGKILL when *name* is armed and this is its time; else does nothing."""
    global _reached  # noqa: PLW0603  a process dies once
    if _armed is None or _armed[0] != name:
        return
    _reached += 1
    if _reached == _armed[1]:
        os.kill(os.getpid(), signal.SIGKILL)
