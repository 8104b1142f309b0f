"""Ports for servers that are told where to listen before they listen, or that come back to where they were.

One that merely was free a moment ago is given to whoever asks next: to a connection, or to a server of another worker.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from functools import cache

_BLOCKS = range(20_000, 32_000, 400)
"""Below what the kernel gives away by itself (net.ipv4.ip_local_port_range begins at 32768)."""


def own_port() -> int:
    """A port of 127.0.0.1 on which nobody listens, and which nobody else is given while this process runs."""
    return next(port for port in itertools.islice(_block(), _BLOCKS.step) if _binds(port))


@cache
def _block() -> Iterator[int]:
    """This process's ports, over and over. A UDP port marks them as taken for as long as it lives."""
    for start in _BLOCKS:
        mark = socket.socket(type=socket.SOCK_DGRAM)
        try:
            mark.bind(("127.0.0.1", start))
        except OSError:
            mark.close()
            continue
        _marks.append(mark)
        return itertools.cycle(range(start, start + _BLOCKS.step))
    raise RuntimeError(f"{len(_BLOCKS)} processes run tests here already: no block of ports is left")


_marks: list[socket.socket] = []


def _binds(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
