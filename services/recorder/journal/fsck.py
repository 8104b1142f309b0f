"""Checking the journal against itself: the chain of every stream, and the projections re-derived from it (J13)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg

from recorder.journal.chain import GENESIS, Record, hash_of
from recorder.journal.checkpoints import Checkpoint
from recorder.journal.events_of import body_of
from recorder.journal.reading import JournalReader

PAGE = 500
_STREAMS = (
    "select stream, campaign, status, seq, hash, at, published_seq, published_hash, published_at, labels from streams "
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as it must be: *where* (a record, an entry, a stream) and *what*."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(slots=True)
class _Stream:
    """What a stream's records say about it."""

    name: str
    campaign: str = ""
    status: str = "open"
    seq: int = 0
    hash: bytes = GENESIS
    at: datetime | None = None
    published_seq: int = 0
    published_hash: bytes | None = None
    published_at: datetime | None = None
    labels: int = 0
    entries: dict[str, _Entry] = field(default_factory=dict)


@dataclass(slots=True)
class _Entry:
    """What the records about an entry say about it: the last one wins."""

    label: int
    created_at: datetime
    seq: int
    body: bytes


async def fsck(pool: asyncpg.Pool, checkpoints: list[Checkpoint] | None = None) -> AsyncIterator[Difference]:
    """Every difference between the journal and what is derived from it, stream by stream.

    Reads each stream in one snapshot, so that it may run beside a working recorder.
    """
    names = [row[0] for row in await pool.fetch("select stream from streams union select distinct stream from records")]
    for name in sorted(names):
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            for difference in await _stream(connection, name):
                yield difference
    for checkpoint in checkpoints or []:
        kept = await pool.fetchval(
            "select hash from records where stream = $1 and seq = $2", checkpoint.stream, checkpoint.seq
        )
        where = f"record {checkpoint.seq} of {checkpoint.stream}"
        if kept is None:
            yield Difference(where, f"it is missing; the checkpoint of {checkpoint.at} has seen it")
        elif kept.hex() != checkpoint.hash:
            yield Difference(where, f"it is not the one that the checkpoint of {checkpoint.at} has seen")


async def _stream(connection: Any, name: str) -> list[Difference]:
    found: list[Difference] = []
    derived = _Stream(name)
    reader = JournalReader(connection)
    expected = 1
    while records := await reader.records(name, expected - 1, PAGE):
        for record in records:
            _fold(derived, record, expected, lambda where, what: found.append(Difference(where, what)))
            expected = record.seq + 1
    stored = await connection.fetchrow(_STREAMS + "where stream = $1", name)
    found += _compare_stream(derived, stored)
    found += await _compare_entries(connection, derived)
    found += await _compare_outbox(connection, derived)
    return found


def _fold(stream: _Stream, record: Record, expected: int, differs: Callable[[str, str], None]) -> None:
    where = f"record {record.seq} of {record.stream} ({record.id})"
    if record.seq != expected:
        differs(
            f"record {expected} of {record.stream}", "it is missing" if record.seq > expected else "it stands twice"
        )
    if record.previous_hash != stream.hash:
        differs(where, "it does not continue from the record before it")
    if hash_of(record) != record.hash:
        differs(where, "it was changed: its hash does not fit what it says")
    if stream.seq and record.campaign != stream.campaign:
        differs(where, f"it belongs to campaign {record.campaign}, its stream to {stream.campaign}")
    if record.published and record.after != stream.published_seq:
        differs(
            where, f"it says that it follows {record.after}, the published record before it is {stream.published_seq}"
        )
    stream.campaign = record.campaign
    stream.seq, stream.hash, stream.at = record.seq, record.hash, record.at
    if record.published:
        stream.published_seq, stream.published_hash, stream.published_at = record.seq, record.hash, record.at
    stream.status = _status_after(stream.status, record.type)
    if record.entry is not None:
        known = stream.entries.get(record.entry)
        if known is None:
            stream.labels += 1
            if record.label != stream.labels:
                differs(where, f"it labels its entry {record.label}, the next label is {stream.labels}")
            stream.entries[record.entry] = _Entry(record.label or 0, record.at, record.seq, record.body)
        else:
            known.seq, known.body = record.seq, record.body


def _status_after(status: str, type_: str) -> str:
    if type_ == "run.closed":
        return "closed"
    if type_ == "run.paused" and status == "open":
        return "paused"
    return "open" if type_ == "run.resumed" and status == "paused" else status


def _compare_stream(derived: _Stream, stored: Any) -> list[Difference]:
    where = f"stream {derived.name}"
    if stored is None:
        return [Difference(where, "it has records and no row")]
    if derived.seq == 0:
        return [Difference(where, "it has a row and no records")] if stored["seq"] else []
    names = ("campaign", "status", "seq", "hash", "at", "published_seq", "published_hash", "published_at", "labels")
    return [
        Difference(where, f"{name} is {_show(stored[name])}, its records say {_show(getattr(derived, name))}")
        for name in names
        if stored[name] != getattr(derived, name)
    ]


async def _compare_entries(connection: Any, derived: _Stream) -> list[Difference]:
    rows = await connection.fetch(
        "select id, campaign, status, server, operation, kind, principal, agent, label, view_seq, view, created_at "
        "from entries where run = $1",
        derived.name,
    )
    uses: dict[str, set[tuple[str, str]]] = {}
    for row in await connection.fetch(
        "select r.entry, r.resource, r.role from entry_resources r join entries e on e.id = r.entry where e.run = $1",
        derived.name,
    ):
        uses.setdefault(row["entry"], set()).add((row["resource"], row["role"]))
    found = []
    stored = {row["id"]: row for row in rows}
    for id_, entry in derived.entries.items():
        where = f"entry {id_} of {derived.name}"
        row = stored.pop(id_, None)
        if row is None:
            found.append(Difference(where, "it has records and no row"))
            continue
        said: dict[str, Any] = {
            "label": entry.label,
            "view_seq": entry.seq,
            "view": entry.body,
            "created_at": entry.created_at,
            "campaign": derived.campaign,
        }
        try:
            body = body_of(entry.body)
        except ValueError:
            found.append(Difference(where, "the body of its latest record cannot be read"))
            continue
        view = body.get("entry", {})
        said |= {
            name: view[name] for name in ("status", "server", "operation", "kind", "principal", "agent") if name in view
        }
        found += [
            Difference(where, f"{name} is {_show(row[name])}, its records say {_show(value)}")
            for name, value in said.items()
            if row[name] != value
        ]
        if isinstance(body.get("resources"), list):
            wanted = {(use["resource"], use["role"]) for use in body["resources"]}
            found += [
                Difference(
                    where, f"resource {resource} ({role}) is {'missing' if (resource, role) in wanted else 'extra'}"
                )
                for resource, role in sorted(wanted ^ uses.get(id_, set()))
            ]
    found += [Difference(f"entry {id_} of {derived.name}", "it has a row and no records") for id_ in sorted(stored)]
    return found


async def _compare_outbox(connection: Any, derived: _Stream) -> list[Difference]:
    rows = await connection.fetch(
        "select o.id, o.seq from outbox o left join records r on r.stream = o.stream and r.seq = o.seq and r.id = o.id "
        "where o.stream = $1 and r.published is not true",
        derived.name,
    )
    return [Difference(f"outbox {row['id']}", f"it names no published record {row['seq']}") for row in rows]


def _show(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 32 else f"{len(value)} bytes"
    return str(value)
