"""A laboratory for reversals: a recorder put together as in a process of its own, a tool server that can misbehave, and plans
made by hand. Run as a program it is one more recorder on the same servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from nats.aio.client import Client
from nats.errors import BadSubscriptionError
from pydantic.alias_generators import to_camel

from recorder import calls
from recorder.campaigns import Campaigns
from recorder.facts import Facts
from recorder.handlers import BusDoor
from recorder.journal import Journal, JournalReader, StoredEntry, Vault
from recorder.journal.dsse import Signer
from recorder.reversing import Reversing, build
from recorder.runs import Runs
from recorder.security_log import SecurityLog
from recorder.serial import Serial
from recorder.servers import Servers
from recorder.settings import Settings
from recorder.toolport.port import OBSERVE_SECONDS
from takeback import json
from takeback.auth import Caller
from takeback.bus import connect
from takeback.calendars import Calendars
from takeback.database import connect_pool, driver_url, service_url
from takeback.ids import new_id
from takeback.keys import ensure_keys
from takeback.locks import Locks
from takeback.messages.campaign import AgentRequest, CampaignRequest, NatsServer, NewMember, RunRequest
from takeback.messages.entry import CallRequest, Entry
from takeback.outbound import guarded_client
from takeback.rpc import Rpc
from takeback.subjects import RPC_APPEND, RPC_OBSERVE
from tests.forking import Forked
from tests.servers_lab.office import SCHEMA, Office, office
from tests.waiting import eventually

OWNER, PALADIN, ROGUE, APPROVER = (Caller(name, "human") for name in ("olga", "paladin", "rogue", "ann"))
AGENT = Caller("bot", "agent")


@dataclass
class Recorder:
    """One recorder without its HTTP doors."""

    client: Client
    campaigns: Campaigns
    runs: Runs
    servers: Servers
    calls: calls.Calls
    reversing: Reversing
    reader: JournalReader
    pool: asyncpg.Pool


@asynccontextmanager
async def recorder(environ: Mapping[str, str]) -> AsyncIterator[Recorder]:
    """A started recorder on the servers that *environ* names."""
    settings = Settings.of(environ)
    keys = settings.keys_dir
    ensure_keys(keys)
    url = service_url(settings.postgres_url, "recorder")
    pool = await connect_pool(url, "recorder", minimum=2, maximum=12)
    client = await connect(settings.nats_url, "recorder")
    journal = Journal(url, pool)
    await journal.start()
    locks = Locks(settings.redis_url)
    campaigns = Campaigns(pool, journal, SecurityLog(pool), Calendars(guarded_client()))
    servers = Servers(pool, journal, campaigns, client, settings, environ)
    runs = Runs(pool, journal, campaigns)
    vault = Vault.from_keys(pool, keys)
    reader = JournalReader(pool)
    undo_deadline = settings.forward_deadline_seconds
    observe_deadline = min(OBSERVE_SECONDS, undo_deadline)

    async def announce() -> None:
        await door.announce()

    reversing = build(
        pool=pool,
        journal=journal,
        reader=reader,
        vault=vault,
        serial=Serial(locks, lease_seconds=2 * undo_deadline + 2 * observe_deadline, wait_seconds=10),
        campaigns=campaigns,
        ports=servers,
        signer=Signer.from_keys(keys),
        announce=announce,
        undo_deadline=undo_deadline,
        observe_deadline=observe_deadline,
        sweep_seconds=settings.sweep_seconds,
    )
    facts = Facts(journal, reader, campaigns, reversing.deciding)
    door = BusDoor(client, reader, reversing.observer, facts, reversing.runner.wake)
    parts = calls.put_together(
        settings=settings,
        pool=pool,
        journal=journal,
        vault=vault,
        campaigns=campaigns,
        runs=runs,
        servers=servers,
        locks=locks,
        nats=client,
        resolve_reversal=reversing.settling.resolve,
    )
    await door.start()
    await reversing.runner.start()
    try:
        yield Recorder(client, campaigns, runs, servers, parts, reversing, reader, pool)
    finally:
        await reversing.runner.stop()
        await door.stop()
        await parts.stop()
        await servers.close()
        await journal.stop()
        await locks.close()
        await client.close()
        await pool.close()


@dataclass
class Lab:
    """The campaign, its run, and what the tests do with them."""

    recorder: Recorder
    environ: dict[str, str]
    office: Office
    tables: asyncpg.Pool
    campaign: str
    run: str
    rpc: Rpc
    service: Any
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def call(self, operation: str, *, principal: str | None = None, **arguments: Any) -> str:
        """The agent's call; the id of its committed entry."""
        wire = {to_camel(name): value for name, value in arguments.items()}
        request = CallRequest(server="office", operation=operation, arguments=wire, principal=principal)
        answer = await self.recorder.calls.recording.call(self.run, AGENT, request)
        entry = answer.document["entry"]
        assert entry["status"] == "committed", entry
        return str(entry["id"])

    async def entry(self, id_: str) -> Entry:
        """The entry as others see it."""
        return Entry.model_validate((await self.stored(id_)).public)

    async def stored(self, id_: str) -> StoredEntry:
        stored = await self.recorder.reader.entry(id_)
        assert stored is not None
        return stored

    async def doc(self, id_: str) -> tuple[str, str] | None:
        """Title and body of a document as the application has it."""
        row = await self.tables.fetchrow("select title, body from docs where id = $1", id_)
        return None if row is None else (row["title"], row["body"])

    async def teammate(self, id_: str, **fields: str) -> None:
        """A person edits the document in the application itself."""
        for name, value in fields.items():
            await self.tables.execute(f"update docs set {name} = $2, rev = rev + 1 where id = $1", id_, value)

    async def compensations(self, id_: str) -> int:
        """How often the application really took something back on a document."""
        return int(await self.tables.fetchval("select count(*) from effects where what = $1", f"undo {id_}"))

    async def propose(
        self,
        *entries: str,
        because: Mapping[str, Sequence[str]] | None = None,
        unresolved: Sequence[str] = (),
        source: str = "declared",
        steps: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> str:
        """A plan whose steps are *entries* in that order, as a planner would make it from what can be observed now.

        *because* says for a step on which entries it builds; *steps* overwrites members of single steps.
        """
        plan, made, observed, last = new_id("pln"), [], [], {}
        for id_ in entries:
            entry = await self.entry(id_)
            seen = await self.rpc.request(RPC_OBSERVE, {"campaign": self.campaign, "items": [{"entry": id_}]})
            observed += seen["observations"]
            resource = entry.effect.resource if entry.effect else None
            version = seen["observations"][0].get("version") if seen["observations"] else None
            expects = last.get(resource)
            moved = expects is None and version != entry.undo.if_version
            made.append(
                {
                    "entry": id_,
                    "label": entry.label,
                    "server": entry.server,
                    "operation": entry.operation,
                    "resource": resource,
                    "ifVersion": entry.undo.if_version,
                    "observedVersion": version,
                    "expects": expects,
                    "conflict": {"fields": []} if moved else None,
                    "because": [{"entry": other, "source": source} for other in (because or {}).get(id_, ())],
                    **(steps or {}).get(id_, {}),
                }
            )
            last[resource] = id_
        body = {
            "plan": {
                "id": plan,
                "campaign": self.campaign,
                "digest": f"digest of {plan}",
                "status": "proposed",
                "asOf": "2026-11-30T12:00:00Z",
                "targets": list(entries),
                "steps": made,
                "unresolved": [{"entry": broken, "reason": "broken"} for broken in unresolved],
                "sideEffects": [{"entry": entries[0], "text": "the readers are told"}],
                "suggestions": [{"kind": "correction", "entry": entries[0], "text": "tell the forecast"}],
            },
            "observed": observed,
        }
        self.plans[plan] = body["plan"]
        await self.append("plan.proposed", body, AGENT, id_=f"{plan}-proposed")
        return plan

    async def approve(self, plan: str, by: Caller = OWNER, **decision: Any) -> dict[str, Any]:
        """The decision, appended; raises the recorder's `Problem`."""
        body = {
            "plan": plan,
            "decision": "approve",
            "digest": self.plans[plan]["digest"] if plan in self.plans else "",
            "reason": "it was a mistake",
            **decision,
        }
        return await self.append("plan.decided", body, by, id_=f"{plan}-decided-{by.sub}")

    async def append(self, type_: str, body: dict[str, Any], by: Caller, id_: str | None = None) -> dict[str, Any]:
        return await self.rpc.request(
            RPC_APPEND,
            {
                "id": id_ or new_id("rec"),
                "type": type_,
                "campaign": self.campaign,
                "by": {"sub": by.sub, "kind": by.kind},
                "body": body,
            },
        )

    async def record(self, plan: str, seconds: float = 20.0) -> dict[str, Any]:
        """The Reversal Record, once it is there."""

        async def found() -> dict[str, Any] | None:
            rows = await self.recorder.pool.fetch(
                "select body from records where stream = $1 and type = 'reversal.completed'", self.campaign
            )
            return next((body["record"] for row in rows if (body := json.loads(row["body"]))["plan"] == plan), None)

        return await eventually(found, seconds)

    async def take_back(self, *entries: str, by: Caller = OWNER, **decision: Any) -> dict[str, str]:
        """Plan, approve and wait: outcome by entry."""
        plan = await self.propose(*entries)
        await self.approve(plan, by, **decision)
        return outcomes(await self.record(plan))

    @contextlib.contextmanager
    def impatient(self) -> Iterator[None]:
        """What is sent meanwhile, call or undo, is soon in doubt: where no answer comes, and there alone."""
        parts: list[Any] = [self.recorder.calls.recording, self.recorder.reversing.settling._dispatch]
        patient = [part._deadline for part in parts]
        for part in parts:
            part._deadline = 0.5
        try:
            yield
        finally:
            for part, deadline in zip(parts, patient, strict=True):
                part._deadline = deadline

    async def receipts(self, entry: str) -> list[dict[str, Any]]:
        """All receipts about an entry, in the order of the journal."""
        rows = await self.recorder.pool.fetch(
            "select body from records where stream = $1 and type = 'reversal.step' order by seq", self.campaign
        )
        return [r for row in rows if (r := json.loads(row["body"])["receipt"])["entry"] == entry]

    async def security(self) -> list[str]:
        return [row["what"] for row in await self.recorder.pool.fetch("select what from security_log order by id")]


def outcomes(record: Mapping[str, Any]) -> dict[str, str]:
    """The outcome of each step of a Reversal Record."""
    return {receipt["entry"]: receipt["outcome"] for receipt in record["receipts"]}


@asynccontextmanager
async def lab_on(postgres_url: str, nats_url: str, redis_url: str, keys: Path, **settings: str) -> AsyncIterator[Lab]:
    """A started recorder, the office on the bus, a campaign with its members, and an open run."""
    environ = {
        "TAKEBACK_POSTGRES_URL": postgres_url,
        "TAKEBACK_NATS_URL": nats_url,
        "TAKEBACK_REDIS_URL": redis_url,
        "TAKEBACK_KEYS_DIR": str(keys),
        "TAKEBACK_SWEEP_SECONDS": "1",
        "TAKEBACK_FORWARD_DEADLINE_SECONDS": "20",
        **settings,
    }
    tables = await asyncpg.create_pool(driver_url(postgres_url), min_size=1, max_size=10)
    await tables.execute(SCHEMA)
    server = office(tables)
    bus = await connect(nats_url, "office")
    service = await server.serve_nats(bus, "tools.office")
    try:
        async with recorder(environ) as running:
            members = [
                NewMember(sub=PALADIN.sub, role="member"),
                NewMember(sub=ROGUE.sub, role="member"),
                NewMember(sub=APPROVER.sub, role="approver"),
            ]
            opened = await running.campaigns.open(OWNER, CampaignRequest(name="Office", members=members))
            campaign = opened["id"]
            await running.servers.put(campaign, OWNER, "office", NatsServer(transport="nats", subject="tools.office"))
            await running.campaigns.put_agent(campaign, OWNER, AGENT.sub, AgentRequest(memory="yes"))
            run = await running.runs.open(campaign, AGENT, RunRequest(agent="bot", model="m1", principal=PALADIN.sub))
            yield Lab(running, environ, server, tables, campaign, run["id"], Rpc(running.client), service)
    finally:
        server.go_on.set()
        # Some tests closed it before, and some left an undo in it that never ends.
        with contextlib.suppress(TimeoutError, BadSubscriptionError):
            async with asyncio.timeout(1):
                await service.close()
        await bus.close()
        await tables.close()


def another_recorder(lab: Lab, **environ: str) -> Forked:
    """One more recorder as a process of its own."""
    return Forked(serve, {**lab.environ, **environ})


async def serve(ready: Callable[[str], None]) -> None:
    """A recorder under the environment's settings, for ever."""
    async with recorder(os.environ):
        ready("ready")
        await asyncio.Event().wait()
