"""Everything that the way of a call consists of, put together for one recorder process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg
from nats.aio.client import Client as NatsClient

from recorder.approvals import Approvals
from recorder.campaigns import Campaigns
from recorder.concluding import Conclusions
from recorder.continuing import Continuations
from recorder.doubt import Doubts, ResolveReversal
from recorder.entries import Entries
from recorder.forwarding import Clock
from recorder.group_reader import GroupReader
from recorder.intending import Intents
from recorder.journal import Journal
from recorder.journal.reading import JournalReader
from recorder.journal.vault import Vault
from recorder.kept import KeptAnswers
from recorder.previews import Previews
from recorder.recording import Recording
from recorder.resolving import Resolver
from recorder.runs import Runs
from recorder.serial import Serial
from recorder.servers import Servers
from recorder.settings import Settings
from recorder.sweeping import Sweep
from takeback import json
from takeback.ids import new_id
from takeback.locks import Locks
from takeback.subjects import TYPE_PREFIX, event_subject

_FORGET_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Calls:
    """The use cases, and the sweeps that go on beside them. *locks* is handed in and closed by its owner."""

    recording: Recording
    previews: Previews
    approvals: Approvals
    doubts: Doubts
    entries: Entries
    kept: KeptAnswers
    continuations: Continuations
    group_reader: GroupReader
    sweeps: tuple[Sweep, ...]

    async def start(self) -> None:
        """Begins to forward what is approved, expire what nobody answered, settle what is in doubt, forget old keys."""
        for sweep in self.sweeps:
            await sweep.start()

    @property
    def background(self) -> list[asyncio.Task[None]]:
        """What goes on from `start` to `stop`."""
        return [task for sweep in self.sweeps for task in sweep.background]

    async def stop(self) -> None:
        """Ends the sweeps and waits for the calls in hand."""
        for sweep in self.sweeps:
            await sweep.stop()
        await self.continuations.drain()
        await self.recording.drain()
        await self.group_reader.stop()


def put_together(
    *,
    settings: Settings,
    pool: asyncpg.Pool,
    journal: Journal,
    vault: Vault,
    campaigns: Campaigns,
    runs: Runs,
    servers: Servers,
    locks: Locks,
    nats: NatsClient,
    resolve_reversal: ResolveReversal,
) -> Calls:
    """The parts, each given what it needs."""
    lease_seconds = settings.forward_deadline_seconds * 1.5 + 1.0
    reader, clock, group_reader = JournalReader(pool), Clock(), GroupReader(settings.postgres_url)
    resolver = Resolver(pool, group_reader, campaigns, runs, servers)
    conclusions = Conclusions(journal, reader, vault, clock)
    serial = Serial(
        locks,
        lease_seconds=lease_seconds + settings.forward_deadline_seconds,
        wait_seconds=settings.lock_wait_seconds,
    )
    intents = Intents(
        journal=journal,
        vault=vault,
        resolver=resolver,
        serial=serial,
        group_reader=group_reader,
        clock=clock,
        deadline=settings.forward_deadline_seconds,
        lease_seconds=lease_seconds,
    )
    approvals = Approvals(
        pool=pool,
        journal=journal,
        reader=reader,
        vault=vault,
        campaigns=campaigns,
        servers=servers,
        doubt_beside=intents.doubt_beside,
        seconds=settings.approval_seconds,
    )
    kept = KeptAnswers(pool)
    recording = Recording(
        journal=journal,
        reader=reader,
        vault=vault,
        resolver=resolver,
        servers=servers,
        serial=serial,
        intents=intents,
        conclusions=conclusions,
        kept=kept,
        clock=clock,
        ask=approvals.ask,
        hint=_hint_on(nats),
        forward_deadline=settings.forward_deadline_seconds,
    )
    doubts = Doubts(
        pool=pool,
        reader=reader,
        vault=vault,
        campaigns=campaigns,
        servers=servers,
        conclusions=conclusions,
        resolve_reversal=resolve_reversal,
    )
    continuations = Continuations(
        name=new_id("rpl"),
        approvals=approvals,
        recording=recording,
        resolver=resolver,
        reader=reader,
        vault=vault,
        lease_seconds=lease_seconds,
    )
    continuing = Sweep("continuations", continuations.sweep, settings.sweep_seconds)
    doubting = Sweep("doubts", doubts.sweep, settings.sweep_seconds)
    expiring = Sweep("approvals", approvals.expire, settings.sweep_seconds)
    forgetting = Sweep("kept answers", kept.forget, _FORGET_SECONDS)
    approvals.wake = continuing.wake
    recording.doubted = doubting.wake
    return Calls(
        recording=recording,
        previews=Previews(resolver, servers, vault, settings.forward_deadline_seconds),
        approvals=approvals,
        doubts=doubts,
        entries=Entries(reader, vault, campaigns, runs),
        kept=kept,
        continuations=continuations,
        group_reader=group_reader,
        sweeps=(continuing, doubting, expiring, forgetting),
    )


def _hint_on(nats: NatsClient) -> Any:
    async def hint(entry: Mapping[str, Any]) -> None:
        """`entry.pending`: an unnumbered hint that a call is still running (contract.md, Bus)."""
        event = {
            "specversion": "1.0",
            "id": new_id("hnt"),
            "source": f"/campaigns/{entry['campaign']}",
            "type": TYPE_PREFIX + "entry.pending",
            "subject": entry["run"],
            "time": entry["createdAt"],
            "datacontenttype": "application/json",
            "data": {"entry": dict(entry)},
        }
        await nats.publish(event_subject(entry["campaign"], "entry.pending"), json.dumps(event))

    return hint
