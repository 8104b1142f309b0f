"""A unit: what is written to the journal as one, or not at all. Pure; `append.sql` is its other half."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import orjson

Status = Literal[
    "awaiting_approval",
    "denied",
    "expired",
    "pending",
    "committed",
    "failed",
    "in_doubt",
    "reverting",
    "reverted",
    "unverified",
]
RefusalReason = Literal[
    "stream-missing",
    "run-closed",
    "run-paused",
    "duplicate-record",
    "idempotency-replay",
    "idempotency-conflict",
    "status-changed",
    "already-claimed",
    "writer-pending",
    "reversal-running",
    "fence-moved",
    "interaction-taken",
]

MAX_KEY_BYTES = 2000
"""What the database can index: a longer resource, key or path is refused before it reaches a batch."""

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class Refused(Exception):  # noqa: N818 (an answer, not a fault)
    """The journal refused this unit and wrote nothing of it.

    *reason* is one of `RefusalReason`; *detail* carries what the caller needs to go on: the fence as it stands
    (fence-moved), the status found (status-changed, ``absent`` if there is no such entry), the other entry (writer-pending,
    already-claimed), the answer kept (idempotency-replay, idempotency-conflict), the owning run (interaction-taken), the
    resource held (reversal-running), the stream (others). *seq* is the old record's (duplicate-record).
    """

    def __init__(self, reason: RefusalReason, detail: str, seq: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.seq = seq


class Unwritable(ValueError):
    """The unit holds what PostgreSQL cannot keep (NUL, half a surrogate pair, a key too long to index); nothing was written."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to append. *id* is made by the caller; *entry* names the entry whose whole view *body* is.

    A type that ends in ``.opened`` opens its stream; any other needs it there.
    """

    stream: str
    campaign: str
    id: str
    type: str
    body: bytes
    kind: Literal["run", "campaign"] = "run"
    published: bool = False
    entry: str | None = None


@dataclass(frozen=True, slots=True)
class EntryChange:
    """What becomes of one entry. *expect* lists the statuses it may have now; None makes it new (and gives it its label).

    The unit must hold a record about the entry in the entry's run: the last such record's body becomes the entry's view.
    *write* and *serial_key*: at most one pending writer per key. *lease_seconds*: until when its holder may still send.
    """

    id: str
    status: Status
    run: str
    campaign: str
    server: str
    operation: str
    kind: str
    principal: str
    agent: str
    expect: Sequence[Status] | None = None
    tier: str | None = None
    interaction: str | None = None
    serial_key: str | None = None
    write: bool = True
    reverts: str | None = None
    arguments_hash: str | None = None
    lease_seconds: float | None = None
    concluded: bool = False


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """That *entry* changes or uses *resource*, at *version* where it is known."""

    entry: str
    resource: str
    role: Literal["changes", "uses"]
    campaign: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Fence:
    """Raise the counter of *key*; where *expect* is given, only if that is how it stands (0: never raised)."""

    key: str
    expect: int | None = None


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The caller's key, kept 7 days with what it was answered with (an entry id, or any id)."""

    sub: str
    path: str
    key: str
    body_hash: str
    entry: str


@dataclass(frozen=True, slots=True)
class Interaction:
    """The first run that names an interaction owns it (contract.md)."""

    campaign: str
    id: str
    run: str


@dataclass(frozen=True, slots=True)
class Holds:
    """What reversals hold still in a campaign. *checked* and *taken* must be free or held by *owner* (a plan's id).

    *released* first lets go of everything that *owner* holds.
    """

    campaign: str
    checked: Sequence[str] = ()
    taken: Sequence[str] = ()
    owner: str | None = None
    released: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """Written as one, or refused as one. *stream_open*: only into runs that are neither closed nor paused.

    *once*: if this record id is already in one of the unit's streams, refuse with duplicate-record.
    """

    records: Sequence[NewRecord]
    entries: Sequence[EntryChange] = ()
    resources: Sequence[ResourceUse] = ()
    fence: Fence | None = None
    idempotency: Idempotency | None = None
    interaction: Interaction | None = None
    holds: Holds | None = None
    stream_open: bool = False
    once: str | None = None


@dataclass(frozen=True, slots=True)
class AppendedRecord:
    """Where a record now stands. *label* is the number of a new entry (``e2`` is 2), *after* the previous published seq."""

    stream: str
    seq: int
    at: datetime
    hash: bytes
    previous_hash: bytes
    after: int | None
    label: int | None


@dataclass(frozen=True, slots=True)
class Appended:
    """Durable: the records in the order of the unit's, and the fence as it stands after (None: the unit named none)."""

    records: list[AppendedRecord]
    fence: int | None = field(default=None)


def encode(unit: Unit) -> bytes:
    """*unit* as one element of append_v1's array, without its bodies.

    Raises `Unwritable`, so that no unit can spoil the batch that it would travel in; ValueError for a unit that is wrong in
    itself (an entry without a record).
    """
    wire = _wire(unit)
    try:
        encoded = orjson.dumps(wire)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise Unwritable(f"The journal cannot keep this: {error}. Nothing was written.") from error
    if b"\\u0000" in encoded and _NUL.search(encoded):
        raise Unwritable("The journal cannot keep the NUL character. Nothing was written.")
    return encoded


def _wire(unit: Unit) -> dict[str, Any]:
    if not unit.records:
        raise ValueError("a unit needs a record")
    new = {change.id for change in unit.entries if change.expect is None}
    last: dict[str, int] = {}
    records = []
    for index, record in enumerate(unit.records):
        first = record.entry in new and record.entry not in last
        if record.entry is not None:
            last[record.entry] = index
        records.append(
            {
                "stream": record.stream,
                "id": record.id,
                "type": record.type,
                "body": index,
                "published": record.published,
                "entry": record.entry,
                "first": first,
            }
        )
    wire: dict[str, Any] = {
        "records": records,
        "bodies": len(records),
        "streams": list({record.stream: None for record in unit.records}),
        "stream_open": unit.stream_open,
        "once": unit.once,
        "entries": [_entry(change, last) for change in unit.entries],
    }
    opens = [
        {"stream": record.stream, "campaign": record.campaign, "kind": record.kind}
        for record in unit.records
        if record.type.endswith(".opened")
    ]
    if opens:
        wire["opens"] = opens
    if unit.resources:
        wire["resources"] = list(
            {(use.entry, use.resource, use.role): _resource(use) for use in unit.resources}.values()
        )
    locks: list[str] = [f"key {change.serial_key}" for change in unit.entries if change.serial_key and change.write]
    if unit.fence is not None:
        wire |= {"fence_key": unit.fence.key, "fence_expect": unit.fence.expect}
        locks.append(f"key {unit.fence.key}")
    if unit.idempotency is not None:
        claim = unit.idempotency
        indexed = _indexed(claim.sub) + _indexed(claim.path) + _indexed(claim.key)
        if indexed > MAX_KEY_BYTES:
            raise Unwritable(f"The idempotency key is longer than {MAX_KEY_BYTES} bytes. Nothing was written.")
        wire |= {
            "sub": claim.sub,
            "path": claim.path,
            "key": claim.key,
            "body_hash": claim.body_hash,
            "answer": claim.entry,
        }
        locks.append(f"idempotency {claim.sub}\n{claim.path}\n{claim.key}")
    if unit.interaction is not None:
        wire |= {
            "interaction": unit.interaction.id,
            "interaction_campaign": unit.interaction.campaign,
            "interaction_run": unit.interaction.run,
        }
        locks.append(f"interaction {unit.interaction.campaign} {unit.interaction.id}")
    if unit.holds is not None:
        holds = unit.holds
        wire |= {"holds_campaign": holds.campaign, "holds_owner": holds.owner, "holds_released": holds.released}
        if holds.checked:
            wire["holds_checked"] = list(holds.checked)
        if holds.taken:
            wire["holds_taken"] = list(holds.taken)
        for resource in {*holds.checked, *holds.taken}:
            _indexed(resource)
            locks.append(f"hold {holds.campaign} {resource}")
    wire["locks"] = locks
    return wire


def _entry(change: EntryChange, last: Mapping[str, int]) -> dict[str, Any]:
    if change.id not in last:
        raise ValueError(f"entry {change.id} changes without a record about it")
    return {
        "id": change.id,
        "expect": None if change.expect is None else list(change.expect),
        "status": change.status,
        "run": change.run,
        "campaign": change.campaign,
        "interaction": change.interaction,
        "server": change.server,
        "operation": change.operation,
        "tier": change.tier,
        "kind": change.kind,
        "principal": change.principal,
        "agent": change.agent,
        "serial_key": change.serial_key,
        "write": change.write,
        "reverts": change.reverts,
        "arguments_hash": change.arguments_hash,
        "record": last[change.id],
        "lease_seconds": change.lease_seconds,
        "concluded": change.concluded,
    }


def _resource(use: ResourceUse) -> dict[str, Any]:
    _indexed(use.resource)
    return {
        "entry": use.entry,
        "resource": use.resource,
        "role": use.role,
        "campaign": use.campaign,
        "version": use.version,
    }


def _indexed(text: str) -> int:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Unwritable("The journal cannot keep half of a surrogate pair. Nothing was written.") from error
    if size > MAX_KEY_BYTES:
        raise Unwritable(f"A resource or key is longer than {MAX_KEY_BYTES} bytes. Nothing was written.")
    return size
