"""Which worker gets which tests (`make test` has several): a whole file, or all files that share one running stack."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

STACKS = (
    "tests/story", "tests/browser", "tests/real_servers", "tests/integration/deployed", "tests/integration/mcp_door",
)  # fmt: skip
"""Folders whose tests share a stack that takes seconds to start. They take longest, so they come first."""
LAST = "tests/unit"
"""Short files, which fill the gaps at the end."""


class ByStack(LoadFileScheduling):
    """Hands out files, and the folders of STACKS as a whole: each stack is started once, not once in each worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        folder = file.rpartition("/")[0]
        return folder if folder in STACKS else file


def turn(item: pytest.Item) -> int:
    """When the tests of an item's folder have their turn."""
    folder = item.nodeid.split("::")[0].rpartition("/")[0]
    if folder in STACKS:
        return STACKS.index(folder)
    return len(STACKS) + folder.startswith(LAST)
