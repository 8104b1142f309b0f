"""A unit: what is written to the journal as one, or not at all. Pure; its other half is `append_v1.sql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

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
    "unsteady",
]


class Refused(Exception):
    """The journal refused this unit and wrote nothing of it.

    *reason* is one of `RefusalReason`; *detail* carries what the caller needs to go on: the fence as it stands
    (fence-moved), the status found (status-changed, ``absent`` if there is no such entry), the other entry (writer-pending,
    already-claimed), the answer kept (idempotency-replay, idempotency-conflict), the owning run (interaction-taken), the
    resource held (reversal-running), the campaign (unsteady), the stream (others). *seq* is the old record's
    (duplicate-record).
    """

    def __init__(self, reason: RefusalReason, detail: str, seq: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.seq = seq


class Unwritable(ValueError):
    """The unit holds what PostgreSQL cannot keep (NUL, half a surrogate pair, a key too long to index); nothing was written."""


MAX_RECORD_BYTES: Final = 6 * 1_048_576
"""A body of this size still goes through NATS as an event, whose messages have 8 MiB (deploy/nats/nats.conf)."""
MAX_VALUE_BYTES: Final = 1_048_576
"""Of a result, and of the state of a record: an entry holds the one, and the other up to four times (before, old, new)."""


class NewRecord(NamedTuple):
    """A record to append. *id* is made by the caller; *entry* names the entry whose whole view *body* is.

    *said* is what *body* says, from a caller who has it at hand: whoever publishes it need not read it again.

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
    said: Mapping[str, Any] | None = None


class EntryChange(NamedTuple):
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


class ResourceUse(NamedTuple):
    """That *entry* changes or uses *resource*, at *version* where it is known."""

    entry: str
    resource: str
    role: Literal["changes", "uses"]
    campaign: str
    version: str | None = None


class Fence(NamedTuple):
    """Raise the counter of *key*; where *expect* is given, only if that is how it stands (0: never raised)."""

    key: str
    expect: int | None = None


class Idempotency(NamedTuple):
    """The caller's key, kept 7 days with what it was answered with (an entry id, or any id)."""

    sub: str
    path: str
    key: str
    body_hash: str
    entry: str


class Interaction(NamedTuple):
    """The first run that names an interaction owns it (contract.md)."""

    campaign: str
    id: str
    run: str


class Holds(NamedTuple):
    """What reversals hold still in a campaign. *checked* and *taken* must be free or held by *owner* (a plan's id).

    *released* first lets go of everything that *owner* holds.
    """

    campaign: str
    checked: Sequence[str] = ()
    taken: Sequence[str] = ()
    owner: str | None = None
    released: bool = False


class Steady(NamedTuple):
    """Only while *campaign* is as it was at *version*, and none of its writes is in doubt.

    *fetched*: and while no answer that was asked for in the unit's streams waits to be fetched (S13).
    """

    campaign: str
    version: int
    fetched: bool = False


class Unit(NamedTuple):
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
    steady: Steady | None = None
    stream_open: bool = False
    once: str | None = None


class AppendedRecord(NamedTuple):
    """Where a record now stands. *label* is the number of a new entry (``e2`` is 2), *after* the previous published seq."""

    stream: str
    seq: int
    at: datetime
    hash: bytes
    previous_hash: bytes
    after: int | None
    label: int | None


class Appended(NamedTuple):
    """Durable: the records in the order of the unit's, and the fence as it stands after (None: the unit named none)."""

    records: list[AppendedRecord]
    fence: int | None = None
