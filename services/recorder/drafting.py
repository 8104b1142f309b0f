"""The bodies of records about a call's entry, and the units that write them. Pure.

A body is ``{entry, host, matchable, resources, internal, …}``: the whole entry as of that record (J5), what the planner links
by, and what only the recorder needs to go on. Secrets are sealed before they get here (J18).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from recorder.intake import Intake, Snapshot, Touched, expected_touched
from recorder.journal import Appended, EntryChange, Fence, NewRecord, ResourceUse, Unwritable
from recorder.journal.chain import instant
from recorder.journal.vault import CampaignKeys
from recorder.lifecycle import Step, after, before, told
from recorder.resolving import Call
from takeback import json
from takeback.ids import new_id
from takeback.messages.entry import EntryStatus, Unresolved

Body = dict[str, Any]

TOKEN_PATH = "undo.compensationToken"  # noqa: S105  where the token stands, not the token


class Stands(NamedTuple):
    """Where an entry stands: what the next append expects and repeats. *label* and *created_at* once the database gave them.

    *fence* is its serial key's, as the step that was written last left it.
    """

    id: str
    status: EntryStatus | None
    body: Body
    serial_key: str | None
    write: bool
    label: int | None = None
    created_at: datetime | None = None
    concluded_at: datetime | None = None
    fence: int | None = None

    def after(self, status: EntryStatus, body: Body, appended: Appended, *, concluded: bool = False) -> Stands:
        """Where it stands once *appended*, whose first record says *body*, is in the journal."""
        written = appended.records[0]
        return Stands(
            self.id,
            status,
            body,
            self.serial_key,
            self.write,
            written.label or self.label,
            self.created_at or written.at,
            written.at if concluded else None,
            appended.fence,
        )


def draft(call: Call, keys: CampaignKeys, because: Sequence[str]) -> Body:
    """The body of a call's first record, without a status."""
    request, declared = call.request, call.operation.declaration
    entry = {
        "id": call.entry,
        "run": call.run.id,
        "campaign": call.campaign,
        "interaction": request.interaction,
        "server": call.operation.server,
        "operation": call.operation.name,
        "tier": declared.tier,
        "kind": call.kind,
        "arguments": keys.seal_fields(call.entry, "arguments", request.arguments, declared.secret),
        "result": None,
        "principal": call.principal,
        "agent": call.agent,
        "model": call.model,
        "effect": None,
        "effects": [],
        "undo": {**call.operation.expected_undo},
        "snapshot": None,
        "previewDiff": None,
        "broadcasts": [],
        "unresolved": [item.wire() for item in [*call.unresolved, *declared.unresolved, *call.resources.unresolved]],
        "reverts": None,
        "revertedBy": None,
        "revertedAt": None,
        "revertedByPerson": None,
        "revertReason": None,
        "remedies": request.remedies,
        "corrects": request.corrects,
        "approval": None,
        "txnId": None,
        "policyDigest": call.settings.policy_digest,
        "concludedAt": None,
    }
    return {
        "entry": entry,
        "host": {
            "uses": request.uses,
            "dependsOn": list(call.depends_on),
            "replacesDefault": call.host_replaces_default,
        },
        "matchable": {"arguments": keys.matchables(_open(request.arguments, declared.secret)), "results": []},
        "resources": [_touched(touched) for touched in expected_touched(call.resources)],
        "internal": {
            "pin": call.operation.pin,
            "source": call.operation.source,
            "argumentsHash": call.arguments_hash,
            "by": {"sub": call.caller.sub, "kind": call.caller.kind},
            "because": list(because),
            "changed": call.operation.changed,
            "secrets": bool(declared.secret),
        },
    }


def with_snapshot(body: Body, snapshot: Snapshot | None, keys: CampaignKeys, secret: Sequence[str]) -> Body:
    """*body* with the state before the call (J2, J6)."""
    if snapshot is None:
        return body
    entry = body["entry"]
    sealed = keys.seal_fields(entry["id"], "snapshot", snapshot.wire(), secret)
    return {**body, "entry": {**entry, "snapshot": sealed}}


def with_intake(
    body: Body,
    intake: Intake,
    keys: CampaignKeys,
    secret: Sequence[str],
    *,
    result: Any,
) -> Body:
    """*body* with what is known after the call; the compensation token sealed."""
    entry = body["entry"]
    effects = [
        _sealed_effect(effect.wire(), index, entry["id"], keys, secret) for index, effect in enumerate(intake.effects)
    ]
    undo = intake.undo.wire()
    token = undo.pop("compensationToken", None)
    if token is not None:
        undo["compensationToken"] = keys.seal(entry["id"], TOKEN_PATH, token)
    unresolved = [item.wire() for item in intake.unresolved]
    kept = [item for item in entry["unresolved"] if item not in unresolved]
    return {
        **body,
        "entry": {
            **entry,
            "result": _sealed_result(result, entry["id"], keys, secret),
            "effect": effects[0] if effects else None,
            "effects": effects,
            "undo": undo,
            "broadcasts": intake.broadcasts,
            "unresolved": [*kept, *unresolved],
        },
        "matchable": {
            "arguments": body["matchable"]["arguments"],
            "results": keys.matchables(_open(_telling(result), secret)),
        },
        "resources": [_touched(touched) for touched in intake.touched],
    }


def without_answer(body: Body, step: Step, why: str) -> Body:
    """*body*, as it was written before the call, after an answer of which nothing can be kept (J7, J11)."""
    entry = body["entry"]
    note = f"The tool answered, and its answer could not be kept. {why}"
    undo = entry["undo"]
    if step == "commit":
        undo = {**undo, "kind": "unknown", "why": "the answer of the call could not be kept"}
    elif step == "fail":
        undo = {**undo, "kind": "none", "why": "the call failed"}
    return {
        **body,
        "entry": {
            **entry,
            "result": {"content": [{"type": "text", "text": note}], "isError": step == "fail"},
            "undo": undo,
            "unresolved": [*entry["unresolved"], Unresolved(field="result", reason=why).wire()],
        },
        "detail": note,
    }


def touched_of(body: Body) -> list[Touched]:
    """The records that *body* says its call changes and uses."""
    return [Touched(**item) for item in body.get("resources") or ()]


def step_of(
    stands: Stands,
    body: Body,
    step: Step,
    *,
    concluded_at: datetime | None = None,
    lease_seconds: float | None = None,
    run: str | None = None,
) -> tuple[NewRecord, EntryChange]:
    """The record and the change that take the entry *stands* one *step* further, with *body* as all that it says from now on.

    Raises `Unwritable` for a body that is no JSON.
    """
    status = after(stands.status, step)
    record_type, published = told(step)
    entry = {**body["entry"], "status": status}
    if stands.label is not None:
        entry["label"] = f"e{stands.label}"
    if stands.created_at is not None:
        entry["createdAt"] = instant(stands.created_at)
    if concluded_at is not None:
        entry["concludedAt"] = instant(concluded_at)
    said = {**body, "entry": entry}
    record = NewRecord(
        stream=run or entry["run"],
        campaign=entry["campaign"],
        id=new_id("rec"),
        type=record_type,
        body=_encoded(said),
        published=published,
        entry=stands.id,
        said=said,
    )
    change = EntryChange(
        id=stands.id,
        status=status,
        run=entry["run"],
        campaign=entry["campaign"],
        server=entry["server"],
        operation=entry["operation"],
        kind=entry["kind"],
        principal=entry["principal"],
        agent=entry["agent"],
        expect=None if stands.status is None else _expected(stands.status, step),
        tier=entry["tier"],
        interaction=entry["interaction"],
        serial_key=stands.serial_key,
        write=stands.write,
        reverts=entry["reverts"],
        arguments_hash=body.get("internal", {}).get("argumentsHash"),
        lease_seconds=lease_seconds,
        concluded=status not in ("pending", "in_doubt", "awaiting_approval"),
    )
    return record, change


def _encoded(body: Body) -> bytes:
    try:
        return json.compact(body)
    except TypeError as error:  # orjson's own error is one
        raise Unwritable(f"The journal cannot keep this: {error}. Nothing was written.") from error


def uses_of(entry: str, campaign: str, touched: Sequence[Touched]) -> list[ResourceUse]:
    """The rows that name what *entry* changes and uses."""
    return [ResourceUse(entry, item.resource, item.role, campaign, item.version) for item in touched]


def fence_of(key: str | None, expect: int | None = None) -> Fence | None:
    """The fence to raise, where there is a serial key."""
    return None if key is None else Fence(key, expect)


@cache
def _expected(status: EntryStatus, step: Step) -> tuple[EntryStatus, ...]:
    """A late outcome settles a doubt that somebody else noted meanwhile; everything else expects what it saw."""
    if status == "pending" and step in ("commit", "fail"):
        return tuple(known for known in before(step) if known in ("pending", "in_doubt"))
    return (status,)


def _sealed_effect(
    effect: dict[str, Any], index: int, entry: str, keys: CampaignKeys, secret: Sequence[str]
) -> dict[str, Any]:
    if not secret:
        return effect
    path = f"effects[{index}]"
    effect["before"] = keys.seal_fields(entry, f"{path}.before", effect["before"], secret)
    for change in effect["changes"]:
        if change["field"] in secret:
            for side in ("old", "new"):
                if change[side] is not None:
                    change[side] = keys.seal(entry, f"{path}.changes.{change['field']}.{side}", change[side])
    return effect


def _sealed_result(result: Any, entry: str, keys: CampaignKeys, secret: Sequence[str]) -> Any:
    """*result* with its secret members sealed; text beside them may repeat them, so it is sealed whole."""
    if not secret or not isinstance(result, dict):
        return result
    sealed = keys.seal_fields(entry, "result", result, secret)
    if sealed.get("content"):
        sealed = {**sealed, "content": keys.seal(entry, "result.content", result["content"])}
    return sealed


def _open(value: Any, secret: Sequence[str]) -> Any:
    if not secret or not isinstance(value, dict):
        return value
    return {key: _open(inner, secret) for key, inner in value.items() if key not in secret}


def _telling(result: Any) -> Any:
    if isinstance(result, dict) and "structuredContent" in result:
        return result["structuredContent"]
    return result.get("content") if isinstance(result, dict) else result


def _touched(item: Touched) -> dict[str, Any]:
    return {"resource": item.resource, "role": item.role, "version": item.version}
