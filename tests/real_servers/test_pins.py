"""When a real server or its manifest is no longer as it was: calls ask, and say which tool it is (J15, E3)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.integration.calls_lab import eventually
from tests.mcp_lab import McpLab
from tests.node_servers import FOLDER, node_server
from tests.real_servers.bench import Bench
from tests.real_servers.servers import manifest

pytestmark = pytest.mark.asyncio(loop_scope="session")
PROGRAM = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"


class Upgradable:
    """The memory server from a copy of its program, which another version may take the place of."""

    def __init__(self, folder: Path) -> None:
        node_server("@modelcontextprotocol/server-memory")
        (folder / "node_modules").symlink_to(FOLDER / "node_modules")
        (folder / "package.json").write_text('{"type": "module"}')
        self._program = folder / "index.js"
        self._pids = folder / "pids"
        self._program.write_text((FOLDER / PROGRAM).read_text())
        start = f"echo $$ >> {self._pids}; exec node {self._program}"
        env = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
        self.config: dict[str, Any] = {"transport": "mcp", "command": "sh", "args": ["-c", start], "env": env}

    def upgrade(self, old: str, new: str) -> None:
        """Change the program and end what runs of it."""
        source = self._program.read_text()
        assert old in source
        self._program.write_text(source.replace(old, new))
        for pid in map(int, self._pids.read_text().split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if (
                    str(self._program) in process.cmdline()[1:]
                ):  # one that has ended may have left its number to another
                    process.kill()


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("Delete specific observations from", "Delete, or think about deleting, observations from", "is no longer"),
        ('registerTool("delete_observations"', 'registerTool("drop_observations"', "is gone"),
    ],
    ids=["another definition", "no longer there"],
)
async def test_a_server_whose_tool_is_no_longer_as_the_manifest_knew_it_is_asked_about_and_the_tool_is_named(
    lab: McpLab, tmp_path: Path, old: str, new: str, what: str
) -> None:
    """J15: also where only the way back needs that tool."""
    server = Upgradable(tmp_path)
    campaign = await lab.campaign(memory={**server.config, "manifest": manifest("memory")})
    bench = Bench(campaign, "memory", server.config)
    wanted = {"entities": [{"name": "Ann", "entityType": "person", "observations": []}]}
    await bench.call("create_entities", **wanted)
    server.upgrade(old, new)

    async def named() -> bool:
        await bench.ask("add_observations", observations=[{"entityName": "Ann", "contents": ["tea"]}])
        return any(
            f"its manifest no longer matches: delete_observations {what}" in why for why in await bench.asked_why()
        )

    await eventually(named)


async def test_an_operation_that_the_manifest_does_not_name_is_asked_about(lab: McpLab, tmp_path: Path) -> None:
    """J15: and what the manifest names goes through."""
    server = Upgradable(tmp_path)
    narrow = yaml.safe_load(manifest("memory"))
    del narrow["operations"]["delete_observations"]
    narrow["conformance"] = []
    campaign = await lab.campaign(memory={**server.config, "manifest": narrow})
    bench = Bench(campaign, "memory", server.config)
    await bench.call("create_entities", entities=[{"name": "Ann", "entityType": "person", "observations": ["tea"]}])
    entry = await bench.asked("delete_observations", deletions=[{"entityName": "Ann", "observations": ["tea"]}])
    assert entry["undo"]["kind"] == "unknown"
