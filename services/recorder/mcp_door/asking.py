"""How an MCP client hears that a person is asked: a link where it can show one, else words (P6). Pure but for the clock.

A link is URL-mode elicitation, never a form: a host can fill in a form by itself, and that would be no person's word. That a
link was opened ("accept") says nothing either: only what the journal holds counts, and it is read on the retry.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import mcp_types as types
from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from recorder.mcp_door.shape import Refusal
from recorder.resolving import arguments_hash
from takeback import json
from takeback.auth import Caller
from takeback.errors import Problem
from takeback.messages.entry import CallRequest

Json = dict[str, Any]
_KEY: Final = "approval"


@dataclass(frozen=True, slots=True)
class Waits:
    """A call that waits for a person: its entry, the approval, and why it was asked (which names no rule)."""

    entry: Json
    approval: Json
    why: str = ""

    @property
    def id(self) -> str:
        """The approval's id."""
        return str(self.approval["id"])

    @property
    def approved(self) -> bool:
        """A person has agreed; the recorder forwards the call by itself."""
        return bool(self.approval["status"] == "approved")

    def link(self, base: str) -> str:
        """The page where a person decides; *base* is the address under which the client reached us."""
        return f"{base.rstrip('/')}/console/approvals/{self.id}"


class States:
    """``requestState`` of the 2026-07-28 era, sealed: the client carries it, and can neither read nor make one.

    It stands for one entry, and only for the same caller, run and call until the approval has expired. All replicas share the
    key: it is derived from the installation's ``master.key``.
    """

    def __init__(self, master_key: bytes) -> None:
        self._codec = AESGCMRequestStateCodec([master_key])

    def seal(self, waits: Waits, run: str, caller: Caller, wanted: CallRequest) -> str:
        """The state that goes with *waits*."""
        expires = datetime.fromisoformat(waits.approval["expiresAt"].replace("Z", "+00:00")).timestamp()
        return self._codec.seal(json.dumps([waits.entry["id"], expires, *_bound(run, caller, wanted)]))

    def entry(self, state: Any, run: str, caller: Caller, wanted: CallRequest) -> str | None:
        """The entry that *state* stands for; None where it stands for nothing that this caller may go on with."""
        try:
            entry, expires, *bound = json.loads(self._codec.unseal(state))
        except (InvalidRequestState, ValueError, TypeError, AttributeError):
            return None
        return str(entry) if bound == _bound(run, caller, wanted) and time.time() < expires else None


def in_words(waits: Waits, link: str) -> Refusal:
    """What is asked of whom, and how to go on."""
    operation = f"{waits.entry['server']}/{waits.entry['operation']}"
    if waits.approved or waits.entry["status"] == "pending":
        text = (
            f"{operation} is on its way to the tool server. Do not make another call for it: make the same "
            "call again to fetch the result."
        )
    else:
        whom = ", ".join(item["sub"] for item in waits.approval.get("asked") or ()) or "an owner of the campaign"
        text = (
            f"{operation} waits for a person and was not forwarded; nothing was changed. {waits.why} "
            f"Asked: {whom}. Approval: {waits.id}, to be decided at {link} until {waits.approval['expiresAt']}. "
            "Once it is approved the call is forwarded by itself, once. Then make the same call again, with the same "
            "arguments: that fetches its result and forwards nothing. Go on with something else meanwhile, or tell your user."
        )
    told = {"entry": waits.entry["id"], "approval": waits.id, "status": waits.entry["status"], "url": link}
    return Refusal(" ".join(text.split()), told)


def elicitation(waits: Waits, link: str, *, modern: bool) -> Json:
    """The params of an ``elicitation/create`` that shows the page where a person decides."""
    operation = f"{waits.entry['server']}/{waits.entry['operation']}"
    params = {"mode": "url", "message": f"{operation} waits for a person's approval ({waits.id}).", "url": link}
    return params if modern else {**params, "elicitationId": waits.id}


def input_required(waits: Waits, link: str, state: str) -> Json:
    """The result of the 2026-07-28 era that has the client show the link and ask again with *state*."""
    asked = {"method": "elicitation/create", "params": elicitation(waits, link, modern=True)}
    return {"resultType": "input_required", "inputRequests": {_KEY: asked}, "requestState": state}


def in_problem(problem: Problem) -> Json | Refusal:
    """What a refused or failed call is to an MCP client: the server's own error where it answered one, else our words."""
    result = problem.extra.get("result")
    if problem.slug == "tool-failed" and isinstance(result, dict):
        return result
    told: Json = {"problem": problem.slug}
    entry = problem.extra.get("entry")
    if isinstance(entry, dict):
        told |= {"entry": entry["id"], "status": entry["status"]}
    if "Retry-After" in problem.headers:
        told["retryAfterSeconds"] = int(problem.headers["Retry-After"])
    return Refusal(problem.detail, told, types.INVALID_PARAMS if problem.status == 422 else types.INTERNAL_ERROR)


def without_result(entry: Json) -> Refusal:
    """What is said of a call that ran, where its result is nothing that JSON or the journal can hold."""
    why = next((item["reason"] for item in entry["unresolved"] if item["field"] == "result"), "it could not be kept")
    operation = f"{entry['server']}/{entry['operation']}"
    text = f"{operation} was called, and its result cannot be passed on: {why.rstrip('.')}. Do not call again for it."
    return Refusal(text, {"entry": entry["id"], "status": entry["status"]})


def _bound(run: str, caller: Caller, wanted: CallRequest) -> list[str | None]:
    hashed = arguments_hash(wanted.server, wanted.operation, wanted.arguments)
    return [run, caller.sub, caller.kind, wanted.agent, hashed]
