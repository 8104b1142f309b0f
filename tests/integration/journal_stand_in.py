"""A journal in memory that answers what a recorder answers on the bus: hand-made events on a real nats-server."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from takeback import bus, json
from takeback.bus import provision_streams
from takeback.errors import Problem
from takeback.ids import new_id
from takeback.messages.plan import Plan
from takeback.messages.rpc import AppendRequest, RefusedRequest
from takeback.subjects import TYPE_PREFIX, event_subject

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class JournalStandIn:
    """Streams of events, and the records of tool servers as they stand now.

    `moves` is how many decisions still to come are refused because a record has just changed.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.streams: dict[str, list[dict[str, Any]]] = {}
        self.campaigns: dict[str, str] = {}
        self.unsettled: list[dict[str, Any]] = []
        self.records: dict[str, dict[str, Any]] = {}
        self.refused: list[dict[str, Any]] = []
        self.appended: list[dict[str, Any]] = []
        self.publishes = True
        self.moves = 0
        self.reverses: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await provision_streams(self._client.jetstream())
        for name in ("heads", "records", "streams", "observe", "append", "refused"):
            await self._client.subscribe(
                f"rpc.recorder.{name}", queue="recorder", cb=self._answering(getattr(self, f"_{name}"))
            )
        await bus.settle(self._client)

    async def add(self, campaign: str, stream: str, type_: str, data: dict[str, Any], id_: str | None = None) -> dict:
        """One more event of *stream*, published unless `publishes` says otherwise."""
        events = self.streams.setdefault(stream, [])
        self.campaigns[stream] = campaign
        seq = len(events) * 2 + 2  # unpublished records stand between
        previous = events[-1]["data"] if events else {"seq": 0, "hash": ""}
        event = {
            "specversion": "1.0",
            "id": id_ or new_id("rec"),
            "source": f"/campaigns/{campaign}",
            "type": TYPE_PREFIX + type_,
            "subject": stream,
            "time": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "datacontenttype": "application/json",
            "data": data
            | {
                "stream": stream,
                "seq": seq,
                "after": previous["seq"],
                "previousHash": previous["hash"],
                "hash": hashlib.sha256(f"{previous['hash']}{type_}{json.dumps(data)!r}".encode()).hexdigest(),
            },
        }
        events.append(event)
        if self.publishes:
            await self.publish(event)
        return event

    async def publish(self, event: dict[str, Any]) -> None:
        short = event["type"].removeprefix(TYPE_PREFIX)
        campaign = self.campaigns[event["data"]["stream"]]
        await self._client.jetstream().publish(
            event_subject(campaign, short), json.dumps(event), headers={"Nats-Msg-Id": event["id"]}
        )

    def latest(self, entry: str) -> dict[str, Any]:
        """The entry as its newest event tells it."""
        told = [
            event["data"]["entry"]
            for events in self.streams.values()
            for event in events
            if event["type"].startswith(f"{TYPE_PREFIX}entry.") and event["data"]["entry"]["id"] == entry
        ]
        return dict(told[-1])

    async def _heads(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "streams": [self._head(name) for name, of in self.campaigns.items() if of == asked["campaign"]],
            "now": self._now(),
            "unsettled": [{"entry": entry} for entry in self.unsettled],
        }

    async def _records(self, asked: dict[str, Any]) -> dict[str, Any]:
        events = [e for e in self.streams.get(asked["stream"], []) if e["data"]["seq"] > asked["after"]]
        return {"events": events[: asked["limit"]]}

    async def _streams(self, asked: dict[str, Any]) -> dict[str, Any]:
        names = sorted(name for name in self.streams if name > asked.get("cursor", ""))
        page = [self._head(name) | {"campaign": self.campaigns[name]} for name in names[:2]]
        return {"streams": page} | ({"next": names[1]} if len(names) > 2 else {})

    async def _observe(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "observations": [
                {"entry": item["entry"], "resource": item["resource"]}
                | self.records.get(item["resource"], {"error": "unknown record"})
                for item in asked["items"]
            ]
        }

    async def _append(self, asked: dict[str, Any]) -> dict[str, Any]:
        campaign, by = asked["campaign"], asked["by"]
        for event in self.streams.get(campaign, []):
            if event["id"] == asked["id"]:
                return {"stream": campaign, "seq": event["data"]["seq"]}
        AppendRequest.model_validate(asked)
        if asked["type"] == "plan.decided" and self.moves:
            self.moves -= 1
            raise Problem(409, "plan-stale", "A record has moved.")
        self.appended.append(asked)
        body = asked["body"] | {"by": by, "campaign": campaign}
        event = await self.add(campaign, campaign, asked["type"], body, asked["id"])
        if asked["type"] == "plan.decided" and body["decision"] == "approve":
            task = asyncio.create_task(self._reverse(campaign, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return {"stream": campaign, "seq": event["data"]["seq"]}

    async def _refused(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.refused.append(RefusedRequest.model_validate(asked).wire())
        return {}

    async def _reverse(self, campaign: str, decided: dict[str, Any]) -> None:
        """Takes every step back that was not left out, once `reverses` is set."""
        if self.reverses is not None:
            await self.reverses.wait()
        proposals = [e["data"] for e in self.streams[campaign] if e["type"] == f"{TYPE_PREFIX}plan.proposed"]
        plan = Plan.model_validate(next(of["plan"] for of in proposals if of["plan"]["id"] == decided["plan"]))
        receipts = []
        for step in plan.steps:
            entry = self.latest(step.entry)
            left_out = step.entry in decided["leaveOut"]
            outcome = "left_out" if left_out else "already_reverted" if entry["status"] == "reverted" else "reverted"
            receipts.append(
                {
                    "entry": step.entry,
                    "outcome": outcome,
                    "approvedBy": decided["by"]["sub"],
                    "authority": decided["by"]["authority"],
                    "at": self._now(),
                }
            )
            if outcome == "reverted":
                await self.add(campaign, entry["run"], "entry.reverted", {"entry": entry | {"status": "reverted"}})
            await self.add(
                campaign, campaign, "reversal.step", {"plan": plan.id, "campaign": campaign, "receipt": receipts[-1]}
            )
        record = {
            "id": new_id("rvc"),
            "plan": plan.id,
            "digest": plan.digest,
            "campaign": campaign,
            "approvedBy": decided["by"]["sub"],
            "authority": decided["by"]["authority"],
            "reason": decided["reason"],
            "receipts": receipts,
            "at": self._now(),
        }
        await self.add(
            campaign, campaign, "reversal.completed", {"plan": plan.id, "campaign": campaign, "record": record}
        )

    def _head(self, stream: str) -> dict[str, Any]:
        last = self.streams[stream][-1]["data"] if self.streams[stream] else {"seq": 0, "hash": ""}
        return {"stream": stream, "seq": last["seq"], "hash": last["hash"]}

    def _now(self) -> str:
        return datetime.now(UTC).isoformat()

    def _answering(self, answer: Answer) -> Callable[[Msg], Awaitable[None]]:
        async def answered(message: Msg) -> None:
            try:
                document = {"ok": await answer(json.loads(message.data))}
            except Problem as problem:
                document = {"problem": problem.document()}
            await message.respond(json.dumps(document))

        return answered
