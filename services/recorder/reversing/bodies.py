"""The bodies of the records that a reversal writes, and the status changes beside them: pure.

A reversal's entry lives in the run of the entry that it takes back. Its body carries what another recorder needs to go on
after a crash: under which plan, on whose word, over which versions, and how the records stood just before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from recorder.intake import changes_between
from recorder.journal import CampaignKeys, EntryChange, NewRecord, ResourceUse, StoredEntry
from recorder.journal.unit import Status
from recorder.reversing.sealing import opened_effects, sealed_effects, secret_fields
from recorder.reversing.work import Expected
from takeback import json
from takeback.extension import Observation, Remap
from takeback.ids import new_id
from takeback.messages.entry import Before, Effect


@dataclass(frozen=True, slots=True)
class Claim:
    """A reversal that is about to be sent, or was: everything that its entry's body says."""

    reversal: str
    original: str
    plan: str
    approved_by: str
    authority: str
    if_version: str | None
    force: bool
    fields: Sequence[str] | None
    expected: Mapping[str, Expected]
    before: Mapping[str, Observation]
    reason: str = ""

    def arguments(self) -> dict[str, Any]:
        """The arguments of the reversal's entry."""
        said: dict[str, Any] = {"entry": self.original, "ifVersion": self.if_version}
        if self.force:
            said["force"] = True
        if self.fields is not None:
            said["fields"] = list(self.fields)
        return said


def claim_of(stored: StoredEntry, keys: CampaignKeys) -> Claim:
    """The claim that a reversal's entry was made with, its secrets open."""
    internal, arguments = stored.body["internal"], stored.body["entry"]["arguments"]
    effects = {
        effect["resource"]: effect for effect in opened_effects(keys, stored.id, stored.body["entry"]["effects"])
    }
    return Claim(
        reversal=stored.id,
        original=arguments["entry"],
        plan=stored.body["plan"],
        approved_by=stored.body["entry"]["principal"],
        authority=internal["authority"],
        if_version=arguments["ifVersion"],
        force=arguments.get("force", False),
        fields=arguments.get("fields"),
        expected={
            resource: Expected(kept["version"], kept["anyVersion"]) for resource, kept in internal["expected"].items()
        },
        before={
            resource: Observation(
                exists=kept["exists"],
                version=kept["version"],
                fields=((effects.get(resource) or {}).get("before") or {}).get("fields"),
            )
            for resource, kept in internal["before"].items()
        },
        reason=internal.get("reason", ""),
    )


def reversal_body(original: StoredEntry, claim: Claim, keys: CampaignKeys) -> dict[str, Any]:
    """The first body of a reversal's entry: pending, nothing sent yet."""
    was = original.entry
    secret = secret_fields(was.get("effects") or [])
    effects = sealed_effects(
        keys,
        claim.reversal,
        [Effect(resource=name, before=_before(seen)).wire() for name, seen in claim.before.items()],
        secret,
    )
    entry = {
        "id": claim.reversal,
        "run": original.run,
        "campaign": original.campaign,
        "interaction": None,
        "server": was["server"],
        "operation": was["operation"],
        "tier": was["tier"],
        "kind": "reversal",
        "arguments": claim.arguments(),
        "result": None,
        "status": "pending",
        "principal": claim.approved_by,
        "agent": claim.approved_by,
        "model": "",
        "effect": effects[0] if effects else None,
        "effects": effects,
        "undo": {"kind": "unknown", "via": was["undo"].get("via", "api"), "why": "the undo has not been answered yet"},
        "snapshot": None,
        "previewDiff": None,
        "broadcasts": [],
        "unresolved": [],
        "reverts": claim.original,
        "revertedBy": None,
        "revertedAt": None,
        "revertedByPerson": None,
        "revertReason": None,
        "remedies": None,
        "corrects": None,
        "approval": None,
        "txnId": None,
        "policyDigest": None,
    }
    return {
        "entry": entry,
        "host": {},
        "matchable": {},
        "resources": [{"resource": name, "role": "changes", "version": None} for name in claim.before],
        "plan": claim.plan,
        "internal": {
            "source": original.body.get("internal", {}).get("source"),
            "authority": claim.authority,
            "reason": claim.reason,
            "expected": {
                name: {"version": wanted.version, "anyVersion": wanted.any_version}
                for name, wanted in claim.expected.items()
            },
            "before": {name: {"exists": seen.exists, "version": seen.version} for name, seen in claim.before.items()},
            "secret": sorted(secret),
        },
    }


def concluded_body(
    reversal: StoredEntry,
    claim: Claim,
    status: str,
    keys: CampaignKeys,
    *,
    after: Mapping[str, Observation],
    undo: Mapping[str, Any] | None,
    remaps: Sequence[Remap],
    side_effects: Sequence[str],
    detail: str | None,
) -> dict[str, Any]:
    """A reversal's body once something is known: what it really did, record by record, and its own undo (S12).

    *undo* has its token sealed already; None where none was offered.
    """
    moved = {remap.from_: remap.to for remap in remaps} if status == "committed" else {}
    effects = []
    for index, (name, seen) in enumerate(claim.before.items()):
        now = after.get(name)
        effect = Effect(
            resource=moved.get(name, name),
            before=_before(seen),
            version=now.version if now is not None else None,
            changes=changes_between(seen.fields if seen.exists else None, now.fields if now.exists else None)
            if now is not None
            else [],
            side_effects=list(side_effects) if index == 0 else [],
        )
        effects.append(effect.wire())
    effects = sealed_effects(keys, reversal.id, effects, reversal.body["internal"]["secret"])
    entry = {
        **reversal.entry,
        "status": status,
        "result": {"detail": detail} if detail else None,
        "effect": effects[0] if effects else None,
        "effects": effects,
        "undo": dict(undo)
        if undo is not None
        else {"kind": "unknown", "via": "api", "why": "it offers no undo of its own"},
    }
    resources = [
        {"resource": name, "role": "changes", "version": effect["version"]}
        for effect in effects
        for name in dict.fromkeys([effect["resource"], *(was for was, to in moved.items() if to == effect["resource"])])
    ]
    told: dict[str, Any] = {"remaps": [remap.wire() for remap in remaps]} if remaps else {}
    return {**reversal.body, "entry": entry, "resources": resources, **told}


def standing_body(stored: StoredEntry, status: str, plan: str | None = None, **changed: Any) -> dict[str, Any]:
    """The body of an entry whose status changes, the rest as it was but for *changed*."""
    entry = {**stored.entry, "status": status, **changed}
    return {**stored.body, "entry": entry, **({"plan": plan} if plan is not None else {})}


def reverted_body(stored: StoredEntry, claim: Claim, reversal: str, at: datetime) -> dict[str, Any]:
    """The body of an entry that is taken back by the entry *reversal*, on the word of *claim*, verified at *at*."""
    return standing_body(
        stored,
        "reverted",
        claim.plan,
        revertedBy=reversal,
        revertedAt=at,
        revertedByPerson=claim.approved_by,
        revertReason=claim.reason,
    )


def restored_body(
    stored: StoredEntry, plan: str | None, versions: Mapping[str, str | None], undo: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The body of an entry whose reversal was taken back: committed again, at the versions that this left (S12).

    *undo* is what the taking back offered; it stands for the same state, and outranks the token that was used up before.
    """
    was = stored.entry
    effects = [
        {**effect, "version": versions[effect["resource"]]} if effect.get("resource") in versions else effect
        for effect in was.get("effects") or ([was["effect"]] if was.get("effect") else [])
    ]
    first = versions.get(effects[0].get("resource") or "") if effects else None
    offered = {**was["undo"], "ifVersion": first if first is not None else was["undo"].get("ifVersion")}
    return standing_body(
        stored,
        "committed",
        plan,
        effect=effects[0] if effects else None,
        effects=effects,
        undo=dict(undo) if undo is not None and undo.get("kind") == "compensate" else offered,
        revertedBy=None,
        revertedAt=None,
        revertedByPerson=None,
        revertReason=None,
    )


def about(
    stored_run: str, campaign: str, entry: str, type_: str, body: Mapping[str, Any], *, published: bool
) -> NewRecord:
    """A record about *entry* in its run."""
    return NewRecord(
        stream=stored_run,
        campaign=campaign,
        id=new_id("rec"),
        type=type_,
        body=json.dumps(body),
        published=published,
        entry=entry,
    )


def change(body: Mapping[str, Any], *, serial_key: str | None, **how: Any) -> EntryChange:
    """The status change of the entry that *body* is about; *how* are EntryChange's own words."""
    entry = body["entry"]
    return EntryChange(
        id=entry["id"],
        status=cast(Status, entry["status"]),
        run=entry["run"],
        campaign=entry["campaign"],
        interaction=entry.get("interaction"),
        server=entry["server"],
        operation=entry["operation"],
        tier=entry["tier"],
        kind=entry["kind"],
        principal=entry["principal"],
        agent=entry["agent"],
        reverts=entry.get("reverts"),
        serial_key=serial_key,
        **how,
    )


def touched(body: Mapping[str, Any]) -> list[ResourceUse]:
    """The rows that say which records the entry of *body* changed."""
    entry = body["entry"]
    return [
        ResourceUse(entry["id"], item["resource"], item["role"], entry["campaign"], item["version"])
        for item in body["resources"]
    ]


def _before(seen: Observation) -> Before | None:
    return Before(version=seen.version, fields=seen.fields or {}) if seen.exists else None
