"""The recorder's door for MCP clients: `/mcp/runs/{run}` and `/mcp/runs/{run}/{server}` (J1, J15, J16, P6).

Two protocol eras, 2025-11-25 and 2026-07-28, and no state between two requests: the run is in the path, the caller in the
bearer token, and any replica answers any request. `build` puts it together for one recorder process.
"""

from __future__ import annotations

from pathlib import Path

import asyncpg
from nats.aio.client import Client as Nats

from recorder.campaigns import Campaigns
from recorder.group_reader import GroupReader
from recorder.journal import JournalReader, Vault
from recorder.kept import KeptAnswers
from recorder.mcp_door.asking import States
from recorder.mcp_door.calling import Calling
from recorder.mcp_door.catalog import Catalog
from recorder.mcp_door.changes import Changes
from recorder.mcp_door.continued import Continued
from recorder.mcp_door.door import McpDoor
from recorder.mcp_door.offers import Offers
from recorder.recording import Recording
from recorder.runs import Runs
from recorder.servers import Servers
from takeback.auth import Verifier

__all__ = ["McpDoor", "build"]


def build(
    *,
    verifier: Verifier,
    pool: asyncpg.Pool,
    nats: Nats,
    keys_dir: Path,
    runs: Runs,
    campaigns: Campaigns,
    servers: Servers,
    recording: Recording,
    reader: JournalReader,
    vault: Vault,
    group_reader: GroupReader,
    forward_seconds: float,
    public_url: str,
) -> McpDoor:
    """The door in front of *recording*. *forward_seconds*: how long an approved call may be on its way; *public_url*: where
    people decide (empty: where the client reached the door)."""
    continued = Continued(
        pool=pool,
        reader=reader,
        vault=vault,
        kept=KeptAnswers(pool),
        group_reader=group_reader,
        runs=runs,
        forward_seconds=forward_seconds,
    )
    catalog = Catalog(pool, runs, campaigns)
    states = States((keys_dir / "master.key").read_bytes())
    calls = Calling(recording, continued, states)
    return McpDoor(verifier, catalog, calls, Offers(catalog, servers), Changes(nats, servers), public_url)
