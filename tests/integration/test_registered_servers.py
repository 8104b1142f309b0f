"""What a recorder remembers of a campaign's tool servers, beside another recorder on the same database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from recorder.servers import Servers
from takeback.errors import Problem
from takeback.messages.campaign import AgentRequest, NatsServer
from tests.integration.reversals_lab import AGENT, OWNER, Lab, lab_on, recorder

OFFICE = NatsServer(transport="nats", subject="tools.office")


@pytest.fixture
async def lab(postgres_url: str, nats_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Lab]:
    async with lab_on(postgres_url, nats_url, redis_url, tmp_path / "keys") as running:
        yield running


async def test_a_server_that_was_registered_at_another_recorder_is_known_at_once(lab: Lab) -> None:
    """J15: however often the campaign's stream moves beside it."""
    async with recorder(lab.environ) as other:
        for name in ("first", "second"):
            await _moves(lab, 2)
            assert await _known(lab.recorder.servers, lab, "office")
            assert not await _known(lab.recorder.servers, lab, name)
            await other.servers.put(lab.campaign, OWNER, name, OFFICE)
            assert await _known(lab.recorder.servers, lab, name)


async def test_what_a_restored_journal_does_not_hold_is_not_remembered(lab: Lab) -> None:
    """J15: nor is what was registered in it meanwhile missed, where its stream is as far again."""
    backup = await _head(lab)
    await lab.recorder.servers.put(lab.campaign, OWNER, "lost", OFFICE)
    assert await _known(lab.recorder.servers, lab, "lost")
    async with lab.tables.acquire() as connection, connection.transaction():
        await connection.execute("set local session_replication_role = replica")
        await connection.execute(
            "delete from recorder.records where stream = $1 and seq > $2", lab.campaign, backup["seq"]
        )
        await connection.execute(
            "update recorder.streams set seq = $2, hash = $3, published_seq = $2, published_hash = $3 where stream = $1",
            lab.campaign, backup["seq"], backup["hash"],
        )  # fmt: skip
        await connection.execute("delete from recorder.operations where server = 'lost'")
        await connection.execute("delete from recorder.servers where name = 'lost'")
    async with recorder(lab.environ) as other:
        await other.servers.put(lab.campaign, OWNER, "new", OFFICE)
    await _moves(lab, 2)
    assert await _known(lab.recorder.servers, lab, "new")
    assert not await _known(lab.recorder.servers, lab, "lost")


async def _known(servers: Servers, lab: Lab, name: str) -> bool:
    try:
        return bool((await servers.describe(lab.campaign, OWNER, name))["operations"])
    except Problem as problem:
        assert problem.status == 404
        return False


async def _moves(lab: Lab, times: int) -> None:
    """The campaign's stream moves, and no server with it."""
    for _ in range(times):
        before = (await _head(lab))["seq"]
        await lab.recorder.campaigns.put_agent(lab.campaign, OWNER, AGENT.sub, AgentRequest(memory="yes"))
        assert (await _head(lab))["seq"] > before


async def _head(lab: Lab) -> Any:
    return await lab.recorder.pool.fetchrow("select seq, hash from streams where stream = $1", lab.campaign)
