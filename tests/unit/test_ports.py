"""Tests that run side by side do not get in each other's way."""

import subprocess
import sys

from tests.ports import own_port


def test_a_port_is_one_processes_own_and_not_one_that_the_kernel_gives_away() -> None:
    """So a server may be told its port before it listens, and find it free when it comes back."""
    script = "from tests.ports import own_port; print(*(own_port() for _ in range(50)))"
    mine = {own_port() for _ in range(50)}
    theirs = {int(port) for port in subprocess.check_output([sys.executable, "-c", script]).split()}
    assert len(mine) == len(theirs) == 50
    assert mine.isdisjoint(theirs)
    assert max(mine | theirs) < 32_768
