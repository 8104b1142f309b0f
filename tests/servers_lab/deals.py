"""A tool server on the bus that keeps deals in memory, counts its effects, and misbehaves as it is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from takeback import bus, json
from takeback.extension import EXTENSION

Json = dict[str, Any]
DEAL = "crm://lab/deal/{dealId}"
TEXT = {"type": "string", "maxLength": 200}


def deal(key: str) -> str:
    """The resource of the deal *key*."""
    return f"crm://lab/deal/{key}"


def _tool(name: str, properties: Json, declared: Json | None) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    meta = {} if declared is None else {"_meta": {EXTENSION: declared}}
    return {"name": name, "description": name, "inputSchema": schema, **meta}


def _writes(**more: Any) -> Json:
    undo = {"kind": "compensate", "via": "api", "window": "P7D", **more.pop("undo", {})}
    return {"tier": "medium", "versioned": True, "resource": DEAL, "undo": undo, **more}


TOOLS = [
    _tool("set_stage", {"dealId": TEXT, "stage": TEXT}, _writes()),
    _tool("create_deal", {"dealId": TEXT, "stage": TEXT}, _writes()),
    _tool("delete_deal", {"dealId": TEXT}, _writes()),
    _tool("add_amount", {"dealId": TEXT, "amount": {"type": "integer"}}, _writes()),
    _tool("read_deal", {"dealId": TEXT}, {"readOnly": True, "resource": DEAL}),
    _tool("send_mail", {"to": TEXT}, {"tier": "high", "undo": {"kind": "none"}}),
    _tool("mystery", {"dealId": TEXT}, None),
    _tool("hinted_read", {"dealId": TEXT}, None) | {"annotations": {"readOnlyHint": True}},
    _tool("pay", {"amount": {"type": "integer"}}, _writes(resource=None)),
    _tool("click", {"dealId": TEXT}, _writes(undo={"via": "ui"})),
    _tool("brief", {"dealId": TEXT}, _writes(undo={"window": "PT60S"})),
    _tool("unversioned", {"dealId": TEXT}, _writes(versioned=False)),
    _tool("set_pin", {"dealId": TEXT, "pin": TEXT}, _writes(secret=["pin"])),
    _tool("quiet", {"dealId": TEXT, "stage": TEXT}, _writes()),
    _tool("carried", {"dealId": TEXT, "stage": TEXT}, _writes(carriesBefore=True)),
    _tool("raw", {"dealId": TEXT, "meta": {}}, _writes()),
]


class DealServer:
    """The server; *log* is its own count of effects by idempotency key.

    `behave(operation, how)` says how the next call of an operation goes: ``lose`` (effect, no reply), ``swallow`` (neither),
    ``hang`` (waits for `release`, then has its effect), ``error`` (an error in the tool's words), ``refuse`` (not run).
    *knows_keys*: whether it can say what became of a key. *readable*: whether records can be observed at all.
    """

    def __init__(self, client: Client, subject: str = "tools.deals") -> None:
        self.subject = subject
        self.tools = [dict(tool) for tool in TOOLS]
        self.deals: dict[str, Json] = {}
        self.log: Counter[str] = Counter()
        self.calls: list[tuple[str, Json, Json]] = []
        self.undone: list[Json] = []
        self.knows_keys = True
        self.readable = True
        self.previews = True
        self.release = asyncio.Event()
        self.arrived = asyncio.Event()
        self.observing = asyncio.Event()
        self.observe_when: asyncio.Event | None = None
        self.observed = 0
        self._client = client
        self._how: dict[str, str] = {}
        self._outcomes: dict[str, Json] = {}
        self._never: set[str] = set()
        self._subscription: Subscription | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._subscription = await self._client.subscribe(f"{self.subject}.*", cb=self._on_request)
        await bus.settle(self._client)

    async def stop(self) -> None:
        self.release.set()
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    def behave(self, operation: str, how: str) -> None:
        self._how[operation] = how

    def put(self, key: str, **fields: Any) -> None:
        """Somebody else writes the deal."""
        old = self.deals.get(key, {"n": 0})
        self.deals[key] = {"n": old["n"] + 1, "fields": fields}

    def redeclare(self, operation: str, **changed: Any) -> None:
        """The server shows another definition of an operation than before."""
        for tool in self.tools:
            if tool["name"] == operation:
                tool["description"] = "changed"
                tool["_meta"] = {EXTENSION: {**tool["_meta"][EXTENSION], **changed}}

    @property
    def effects(self) -> int:
        """All effects of all calls."""
        return sum(self.log.values())

    async def _on_request(self, message: Msg) -> None:
        task = asyncio.ensure_future(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg) -> None:
        what, request = message.subject.rsplit(".", 1)[1], json.loads(message.data or b"{}")
        match what:
            case "describe":
                reply: Json | None = self._describe()
            case "call":
                reply = await self._call(request["name"], request["arguments"], request["_meta"][EXTENSION])
            case "observe":
                reply = self._observe(request.get("resource"), request.get("entry"))
                held, self.observe_when = self.observe_when, None
                if held is not None:  # what was read is told late
                    self.observing.set()
                    await held.wait()
            case "preview":
                reply = self._preview(request["operation"], request["arguments"])
            case _:
                reply = self._undo(request)
        if reply is not None and message.reply:
            await message.respond(json.dumps(reply))

    def _describe(self) -> Json:
        extension: Json = {"version": 1, "undoTool": "undo", "observeTool": "observe"}
        if self.previews:
            extension["previewTool"] = "preview"
        return {
            "serverInfo": {"name": "deals", "version": "1"},
            "capabilities": {"extensions": {EXTENSION: extension}},
            "tools": self.tools,
        }

    async def _call(self, name: str, arguments: Json, meta: Json) -> Json | None:
        key = meta["idempotencyKey"]
        self.calls.append((name, arguments, meta))
        self.arrived.set()
        how = self._how.pop(name, "")
        if how == "hang":
            await self.release.wait()
        if how == "swallow" or key in self._never:
            return None
        if how == "error":
            self._outcomes[key] = {"outcome": "failed"}
            return {"content": [{"type": "text", "text": "the deal is locked"}], "isError": True}
        reply = self._run(name, arguments, key)
        self._outcomes[key] = {"outcome": "committed", "meta": reply["_meta"][EXTENSION], "result": reply}
        return None if how == "lose" else reply

    def _run(self, name: str, arguments: Json, key: str) -> Json:
        self.log[key] += 1
        ids = arguments.get("dealId", "")
        before = self.deals.get(ids)
        after = self._after(name, arguments, before)
        if name in ("read_deal", "hinted_read"):
            return _result(dict((before or {"fields": {}})["fields"]), {"undo": {"kind": "none"}})
        if name == "raw":
            return _result({"ok": True}, arguments["meta"])
        if name in ("send_mail", "mystery", "pay"):
            part = {} if name == "mystery" else {"undo": {"kind": "none"}}
            return _result({"sent": True}, part)
        if after is None:
            self.deals.pop(ids, None)
        else:
            self.deals[ids] = after
        part = {"undo": {"kind": "compensate", "compensationToken": f"token-of-{key}"}}
        if name != "quiet":
            part["effect"] = _effect(ids, before, after)
        return _result({"dealId": ids}, part)

    def _after(self, name: str, arguments: Json, before: Json | None) -> Json | None:
        fields = dict((before or {"fields": {}})["fields"])
        match name:
            case "set_stage" | "create_deal" | "quiet" | "carried":
                fields["stage"] = arguments["stage"]
            case "add_amount":
                fields["amount"] = fields.get("amount", 0) + arguments["amount"]
            case "set_pin":
                fields["pin"] = arguments["pin"]
            case "delete_deal":
                return None
            case "click" | "brief" | "unversioned":
                fields["clicks"] = fields.get("clicks", 0) + 1
            case _:
                return before
        return {"n": (before or {"n": 0})["n"] + 1, "fields": fields}

    def _observe(self, resource: str | None, entry: str | None) -> Json:
        self.observed += 1
        answer: Json = {"exists": None, "version": None, "fields": None}
        if resource is not None and self.readable:
            found = self.deals.get(resource.rsplit("/", 1)[1])
            answer = {"exists": found is not None, "version": _version(found), "fields": found and found["fields"]}
        if entry is not None:
            answer["call"] = self._outcome_of(entry)
        return answer

    def _outcome_of(self, key: str) -> Json:
        if not self.knows_keys:
            return {"outcome": "unknown"}
        if key not in self._outcomes:
            self._never.add(key)
            return {"outcome": "never"}
        return self._outcomes[key]

    def _preview(self, operation: str, arguments: Json) -> Json:
        before = self.deals.get(arguments.get("dealId", ""))
        return {"effect": _effect(arguments.get("dealId", ""), before, self._after(operation, arguments, before))}

    def _undo(self, request: Json) -> Json:
        self.undone.append(request)
        return {"outcome": "failed", "detail": "not in this laboratory"}


def _version(found: Mapping[str, Any] | None) -> str | None:
    return None if found is None else f"v{found['n']}"


def _effect(ids: str, before: Json | None, after: Json | None) -> Json:
    old, new = (before or {"fields": {}})["fields"], (after or {"fields": {}})["fields"]
    return {
        "resource": deal(ids),
        "before": None if before is None else {"version": _version(before), "fields": old},
        "version": _version(after),
        "changes": [
            {"field": name, "old": old.get(name), "new": new.get(name)}
            for name in {**old, **new}
            if old.get(name) != new.get(name)
        ],
    }


def _result(structured: Json, part: Any) -> Json:
    return {
        "content": [{"type": "text", "text": json.dumps(structured).decode()}],
        "structuredContent": structured,
        "isError": False,
        "_meta": {EXTENSION: part},
    }
