"""Conformance: it finds what does not hold, and marks what does for the policy (P4)."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import asyncpg
import pytest
import yaml

from recorder.conformance import Result
from recorder.conformance.command import at_server, cases_in
from recorder.manifest import read_manifest
from takeback.database import driver_url
from tests.crm_server import ROWS, SCHEMA
from tests.mcp_lab import McpLab
from tests.real_servers.bench import Bench
from tests.real_servers.servers import manifest, memory

pytestmark = pytest.mark.asyncio(loop_scope="session")
NEW = {"entities": [{"name": "Ann", "entityType": "person", "observations": []}]}


async def _tried(folder: Path, old: str, new: str) -> dict[tuple[str, str], Result]:
    source = manifest("memory")
    assert old in source
    async with memory(folder) as config:
        results = await at_server(config, read_manifest(source.replace(old, new)))
    return {(result.operation, result.case): result for result in results}


async def test_an_undo_that_does_not_give_back_what_was_there_fails(tmp_path: Path) -> None:
    """P4: the records are compared, whatever the undo says of itself."""
    tried = await _tried(tmp_path, 'entityNames: ["${keys.name}"]}}\n\n  add', "entityNames: [nobody]}}\n\n  add")
    failed = tried["create_entities", "new entities"]
    assert "was not there before the call, and is there after the undo" in str(failed.trials["undo"])
    assert sorted(result.operation for result in tried.values() if not result.passed) == ["create_entities"] * 2


async def test_an_undo_that_overwrites_somebody_elses_change_fails(tmp_path: Path) -> None:
    """P4: a version that never changes sees no conflict."""
    tried = await _tried(
        tmp_path,
        "    exists: size(graph) > 0\n    fields: {type",
        '    exists: size(graph) > 0\n    version: "size(graph)"\n    fields: {type',
    )
    failed = tried["add_observations", "new observations"]
    assert failed.trials["undo"] is None
    assert "no conflict" in str(failed.trials["conflict"])


async def test_an_operation_with_a_way_back_and_no_case_fails(tmp_path: Path) -> None:
    """P4: nothing is untried in silence."""
    tried = await _tried(
        tmp_path,
        "    call: delete_relations\n    arguments: {relations: &knows",
        "    call: create_relations\n    arguments: {relations: &knows",
    )
    assert "no case tries it" in str(tried["delete_relations", "(no case)"].trials["call"])


async def test_an_operation_asks_until_a_conformance_run_at_the_installation_has_seen_its_undo_hold(
    lab: McpLab, tmp_path: Path
) -> None:
    """P4: `takeback conformance SERVER --campaign …`, and the recorder goes on at once."""
    narrow = yaml.safe_load(manifest("memory"))
    narrow["conformance"] = [
        case for case in narrow["conformance"] if case["call"] in ("create_entities", "create_relations")
    ]
    for operation in ("add_observations", "delete_observations", "delete_entities", "delete_relations"):
        del narrow["operations"][operation]
    async with memory(tmp_path) as config:
        registered = {**config, "manifest": narrow}
        campaign = await lab.campaign(policy={"requireExercised": True}, memory=registered)
        bench = Bench(campaign, "memory", config)
        await bench.asked("create_entities", **NEW)
        command = ["-m", "takeback", "conformance", "memory", "--campaign", campaign.id]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env={**os.environ, **lab.environ}, stdout=asyncio.subprocess.PIPE
        )
        told = (await process.communicate())[0].decode()
        assert process.returncode == 0, told
        assert told.rstrip().endswith("3 passed, 0 failed")
        await bench.call("create_entities", **NEW)
        shown = await campaign.owner("GET", "servers/memory")
        exercised = {operation["operation"] for operation in shown["operations"] if operation["exercised"]}
        assert exercised == {"create_entities", "create_relations"}


CASES = """
conformance:
  - name: a deal that is moved on
    call: update_deal
    arguments: {dealId: D-881, stage: won}
    meanwhile: {call: update_deal, arguments: {dealId: D-881, stage: lost}}
"""


async def test_a_server_that_declares_its_undo_itself_is_tried_by_cases_from_a_file(empty_postgres_url: str) -> None:
    """P4: other operations with a way back are named, because nobody has tried them."""
    url = driver_url(empty_postgres_url)
    connection = await asyncpg.connect(url)
    await connection.execute(SCHEMA + ROWS)
    await connection.close()
    config = {
        "transport": "mcp", "command": sys.executable, "args": ["-m", "tests.crm_server"], "env": {"CRM_DATABASE": url},
    }  # fmt: skip
    tried, *untried = await at_server(config, None, cases_in(CASES))
    assert tried.trials == dict.fromkeys(("call", "undo", "twice", "conflict"))
    assert {result.case for result in untried} == {"(no case)"}
