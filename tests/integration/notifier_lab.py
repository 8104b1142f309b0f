"""A notifier on real servers, in front of a stand-in for the recorder: a journal in memory that answers the same questions.

The journal chains its records and publishes them to JetStream, or keeps them from it as a lost bus would.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from httpx_sse import ServerSentEvent, aconnect_sse
from nats.aio.client import Client
from nats.aio.msg import Msg

from notifier.app import Notifier, build
from takeback import bus, json
from takeback.auth import issue_token
from takeback.database import service_url
from takeback.door import Door, bind
from takeback.edge import Edge
from takeback.errors import Problem
from takeback.ids import new_id
from takeback.keys import ensure_keys
from takeback.messages.rpc import AppendRequest, RefusedRequest
from takeback.subjects import TYPE_PREFIX, event_subject
from tests.waiting import WAIT_SECONDS, eventually


class StandInJournal:
    """Chained streams, and the RPC that the notifier asks the recorder by."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.streams: dict[str, list[dict[str, Any]]] = {}
        self.unsettled: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.age = timedelta()
        """How long ago what is appended happened."""
        self._subscription: Any = None

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, nats_url: str) -> AsyncIterator["StandInJournal"]:
        """A journal that answers, with the streams provisioned."""
        async with connected(nats_url) as client:
            journal = cls(client)
            await journal.start()
            yield journal

    async def start(self) -> None:
        self._subscription = await self._client.subscribe("rpc.recorder.*", queue="recorder", cb=self._on_request)
        await bus.settle(self._client)

    async def stop(self) -> None:
        await self._subscription.unsubscribe()
        await bus.settle(self._client)

    async def append(
        self,
        stream: str,
        campaign: str,
        kind: str,
        body: dict[str, Any],
        *,
        publish: bool = True,
        record: str | None = None,
    ) -> dict[str, Any]:
        """One record; its event goes to JetStream unless *publish* is False."""
        chain = self.streams.setdefault(stream, [])
        previous = chain[-1]["data"]["hash"] if chain else "0" * 64
        seq = len(chain) + 1
        event = {
            "specversion": "1.0",
            "id": record or new_id("rec"),
            "source": f"/campaigns/{campaign}",
            "type": TYPE_PREFIX + kind,
            "subject": stream,
            "time": (datetime.now(UTC) - self.age).isoformat(),
            "datacontenttype": "application/json",
            "data": {
                **body,
                "stream": stream,
                "seq": seq,
                "after": seq - 1,
                "previousHash": previous,
                "hash": hashlib.sha256(previous.encode() + json.dumps(body)).hexdigest(),
            },
        }
        chain.append(event)
        if publish:
            await self.publish(event)
        return event

    async def publish(self, event: dict[str, Any], *, again: bool = False) -> None:
        """Hands *event* to JetStream; *again*: under another message id, so that it is delivered once more."""
        campaign = event["source"].removeprefix("/campaigns/")
        await self._client.jetstream().publish(
            event_subject(campaign, event["type"].removeprefix(TYPE_PREFIX)),
            json.dumps(event),
            headers={"Nats-Msg-Id": new_id("again") if again else event["id"]},
        )

    async def _on_request(self, message: Msg) -> None:
        asked = json.loads(message.data)
        try:
            answer: dict[str, Any] = {"ok": await self._answer(message.subject.rsplit(".", 1)[-1], asked)}
        except Problem as problem:
            answer = {"problem": problem.document()}
        await message.respond(json.dumps(answer))

    async def _answer(self, what: str, asked: dict[str, Any]) -> dict[str, Any]:
        match what:
            case "heads":
                campaign = f"/campaigns/{asked['campaign']}"
                heads = [head for head in self._heads() if self.streams[head["stream"]][0]["source"] == campaign]
                now = datetime.now(UTC).isoformat()
                return {"streams": heads, "now": now, "unsettled": [{"entry": entry} for entry in self.unsettled]}
            case "streams":
                return {"streams": self._heads(), "next": None}
            case "records":
                chain = self.streams.get(asked["stream"], [])
                return {"events": [event for event in chain if event["data"]["seq"] > asked["after"]][: asked["limit"]]}
            case "append":
                for event in self.streams.get(asked["campaign"], []):
                    if event["id"] == asked["id"]:
                        return {"seq": event["data"]["seq"], "stream": asked["campaign"]}
                AppendRequest.model_validate(asked)
                body = {**asked["body"], "campaign": asked["campaign"], "by": asked["by"]}
                event = await self.append(asked["campaign"], asked["campaign"], asked["type"], body, record=asked["id"])
                return {"seq": event["data"]["seq"], "stream": asked["campaign"]}
            case "refused":
                RefusedRequest.model_validate(asked)
                self.refused.append(asked)
                return {}
            case _:
                raise Problem(404, "not-found", what)

    def _heads(self) -> list[dict[str, Any]]:
        return [
            {"stream": stream, "seq": chain[-1]["data"]["seq"], "hash": chain[-1]["data"]["hash"]}
            for stream, chain in self.streams.items()
        ]


class Story:
    """A campaign with its people and one run, told to the journal step by step."""

    def __init__(self, journal: StandInJournal, campaign: str | None = None, run: str | None = None) -> None:
        self.journal = journal
        self.campaign = campaign or new_id("cmp")
        self.run = run or new_id("run")
        self.entries: dict[str, dict[str, Any]] = {}

    async def begin(self, **roles: str) -> None:
        """The campaign opens with `gm` as owner and *roles*; `ranger`, an agent, opens a run for `paladin`."""
        by = {"sub": "gm", "kind": "human", "authority": "owner"}
        opened = {"campaign": self.campaign, "name": "Table", "serialize": "campaign", "owner": "gm"}
        await self.tell("campaign.opened", opened)
        for sub, role in {"gm": "owner", "paladin": "member", **roles}.items():
            await self.member(sub, role)
        agent = {"campaign": self.campaign, "name": "ranger", "memory": "unknown", "by": by}
        await self.tell("agent.changed", agent)
        run = {"campaign": self.campaign, "run": self.run, "agent": "ranger", "model": "m-1", "principal": "paladin"}
        await self.journal.append(self.run, self.campaign, "run.opened", {**run, "by": by})

    async def member(self, sub: str, role: str | None, **options: Any) -> dict[str, Any]:
        by = {"sub": "gm", "kind": "human", "authority": "owner"}
        body = {"campaign": self.campaign, "sub": sub, "role": role, "email": f"{sub}@example.org", "by": by}
        return await self.tell("member.changed", body, **options)

    async def tell(self, kind: str, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        """A record of the campaign's own stream."""
        return await self.journal.append(self.campaign, self.campaign, kind, body, **options)

    async def call(self, *, publish: bool = True, seconds: float | None = 3600, **changed: Any) -> str:
        """A committed call whose window closes in *seconds*; answers its entry."""
        entry = new_id("ent")
        view = entry_view(entry, f"e{len(self.entries) + 1}", self.run, self.campaign, seconds) | changed
        self.entries[entry] = view
        await self.entry_event(f"entry.{view['status']}", view, publish=publish)
        return entry

    async def revert(self, entry: str, *, publish: bool = True) -> dict[str, Any]:
        """A verified reversal of *entry*."""
        self.entries[entry] |= {"status": "reverted", "revertedBy": new_id("ent"), "revertedByPerson": "paladin"}
        return await self.entry_event("entry.reverted", self.entries[entry], publish=publish)

    async def restore(self, entry: str) -> None:
        """The reversal of *entry* was itself taken back."""
        self.entries[entry] |= {"status": "committed", "revertedBy": None}
        await self.entry_event("entry.committed", self.entries[entry])

    async def ends(self, *entries: str, seconds: float = 0.0) -> None:
        """The windows of *entries* now close in *seconds*, whatever was told of them before."""
        for entry in entries:
            undo_by = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
            self.entries[entry] |= {"undo": self.entries[entry]["undo"] | {"undoBy": undo_by}}
            await self.entry_event("entry.committed", self.entries[entry])

    async def close(self, **options: Any) -> dict[str, Any]:
        by = {"sub": "ranger", "kind": "agent"}
        body = {"run": self.run, "campaign": self.campaign, "by": by}
        return await self.journal.append(self.run, self.campaign, "run.closed", body, **options)

    async def entry_event(self, kind: str, view: dict[str, Any], **options: Any) -> dict[str, Any]:
        body = {"entry": dict(view), "host": {"uses": [], "dependsOn": [], "replacesDefault": False}}
        return await self.journal.append(self.run, self.campaign, kind, body, **options)


def entry_view(entry: str, label: str, run: str, campaign: str, seconds: float | None) -> dict[str, Any]:
    """A committed call that can be taken back for *seconds* from now."""
    now = datetime.now(UTC)
    undo_by = None if seconds is None else (now + timedelta(seconds=seconds)).isoformat()
    effect = {"resource": f"table://creature/{label}", "before": None, "version": "2", "changes": []}
    return {
        "id": entry, "label": label, "run": run, "campaign": campaign, "interaction": "turn-1", "server": "table",
        "operation": "damage_creature", "tier": "high", "kind": "call", "arguments": {"points": 3},
        "result": {"hp": 4}, "status": "committed", "principal": "paladin", "agent": "ranger", "model": "m-1",
        "effect": effect, "effects": [effect], "undo": {"kind": "compensate", "via": "api", "undoBy": undo_by},
        "broadcasts": [], "createdAt": now.isoformat(), "concludedAt": now.isoformat(),
    }  # fmt: skip


class Lab:
    """One notifier behind its door."""

    def __init__(self, postgres_url: str, nats_url: str, folder: Path) -> None:
        self.keys = folder / "keys"
        ensure_keys(self.keys)
        self.environ = {
            "TAKEBACK_POSTGRES_URL": service_url(postgres_url, "notifier"),
            "TAKEBACK_NATS_URL": nats_url,
            "TAKEBACK_KEYS_DIR": str(self.keys),
            "TAKEBACK_SWEEP_SECONDS": "60",
            "TAKEBACK_CATCH_UP_SECONDS": str(WAIT_SECONDS),
        }

    def token(self, sub: str, kind: Any = "human") -> dict[str, str]:
        """The header that says who is asking."""
        return {"Authorization": f"Bearer {issue_token(self.keys / 'token.pem', sub, kind)}"}

    @contextlib.asynccontextmanager
    async def notifier(self, **settings: str) -> AsyncIterator["Replica"]:
        """A running replica, ready."""
        notifier = await build(self.environ | {f"TAKEBACK_{name.upper()}": value for name, value in settings.items()})
        edge = Edge([notifier])
        await notifier.start()
        try:
            async with (
                Door(edge, bind("127.0.0.1", 0)) as door,
                httpx.AsyncClient(base_url=door.url, timeout=WAIT_SECONDS) as http,
            ):
                await eventually(lambda: _is_ready(notifier))
                yield Replica(notifier, door.url, http)
        finally:
            await notifier.stop()


@contextlib.asynccontextmanager
async def subscribed(nats_url: str, subject: str) -> AsyncIterator[list[dict[str, Any]]]:
    """What a plain subscriber hears on *subject*, as it comes."""
    heard: list[dict[str, Any]] = []

    async def on_message(message: Msg) -> None:
        heard.append(json.loads(message.data))

    client = await bus.connect(nats_url, "subscriber")
    try:
        await client.subscribe(subject, cb=on_message)
        await bus.settle(client)
        yield heard
    finally:
        await client.close()


class Replica:
    """A running notifier and a client of its door."""

    def __init__(self, notifier: Notifier, url: str, http: httpx.AsyncClient) -> None:
        self.notifier = notifier
        self.url = url
        self.http = http

    @contextlib.asynccontextmanager
    async def listen(self, campaign: str, headers: dict[str, str], **query: str) -> AsyncIterator["Ear"]:
        """An open live stream."""
        path = f"/v1/campaigns/{campaign}/stream"
        async with aconnect_sse(self.http, "GET", path, headers=headers, params=query) as source:
            source.response.raise_for_status()
            yield Ear(source.response.headers["last-event-id"], source.aiter_sse())


class Ear:
    """What a live stream says, one event after another; `start` is the place where it began."""

    def __init__(self, start: str, events: AsyncIterator[ServerSentEvent]) -> None:
        self.start = start
        self._events = events

    async def next(self) -> ServerSentEvent:
        async with asyncio.timeout(WAIT_SECONDS):
            return await anext(self._events)

    async def until(self, kind: str) -> ServerSentEvent:
        """The next event of *kind*."""
        while (event := await self.next()).event != kind:
            pass
        return event


async def _is_ready(notifier: Notifier) -> bool:
    return not await notifier.not_ready()


@contextlib.asynccontextmanager
async def connected(nats_url: str) -> AsyncIterator[Client]:
    """A connection of the services' own user, with the streams provisioned."""
    client = await bus.connect(nats_url, "test")
    try:
        await bus.provision_streams(client.jetstream())
        yield client
    finally:
        await client.close()
