"""Reading the journal: entries as they stand, and what the bus and its consumers ask for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from recorder.journal.chain import Record
from recorder.journal.events_of import body_of, completed, document_of, public_view
from recorder.journal.unit import MAX_RECORD_BYTES

_RECORDS = "select stream, seq, id, campaign, type, at, previous_hash, hash, body, entry, label, after, published from records "
_NEXT = """
select stream, seq, id, campaign, type, at, previous_hash, hash, body, entry, label, after, published from (
    select *, sum(octet_length(body)) over (order by seq) - octet_length(body) as bytes_before
    from records where stream = $1 and seq > $2 and (published or not $4) order by seq limit $3
) as page where bytes_before + octet_length(body) <= $5::bigint or bytes_before = 0 order by seq
"""
_ENTRIES = (
    "select id, run, campaign, status, serial_key, write, kind, reverts, label, view_seq, view, lease_until, created_at, "
    "concluded_at from entries "
)
_HEADS = """
select clock_timestamp() as now, s.* from (select) as once left join (
    select stream, campaign, kind, published_seq, published_hash from streams
    where campaign = $1 and published_seq > 0 and ($2::timestamptz is null or published_at >= $2)
) as s on true order by s.stream
"""
UNSETTLED = ("awaiting_approval", "pending", "in_doubt", "reverting", "unverified")

COMMIT_ORDER_MARGIN = timedelta(seconds=30)
"""A record's time is taken before its commit is seen, by at most the writer's deadline: `heads` looks back that much more."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it stands. *body* is the whole body of its latest record, sealed values sealed, internals included."""

    id: str
    run: str
    campaign: str
    status: str
    serial_key: str | None
    write: bool
    kind: str
    reverts: str | None
    label: int
    view_seq: int
    body: dict[str, Any]
    lease_until: datetime | None
    created_at: datetime
    concluded_at: datetime | None

    @property
    def entry(self) -> dict[str, Any]:
        """The entry with label and times, its secrets still sealed: what the next record's body starts from."""
        return completed(self.body["entry"], self.label, self.created_at, self.concluded_at)

    @property
    def public(self) -> dict[str, Any]:
        """The entry as others may see it (contract.md, Entry)."""
        return completed(public_view(self.body)["entry"], self.label, self.created_at, self.concluded_at)


@dataclass(frozen=True, slots=True)
class Head:
    """How far a stream is published; *seq* 0 and an empty hash: nothing yet."""

    stream: str
    campaign: str
    kind: str
    seq: int
    hash: str

    def wire(self) -> dict[str, Any]:
        """Its JSON document."""
        return {"stream": self.stream, "campaign": self.campaign, "kind": self.kind, "seq": self.seq, "hash": self.hash}


class JournalReader:
    """Questions to the journal; *pool* is the recorder's own."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def entry(self, id_: str) -> StoredEntry | None:
        """The entry as it stands, or None."""
        row = await self._pool.fetchrow(_ENTRIES + "where id = $1", id_)
        return None if row is None else _stored(row)

    async def entries_of_run(self, run: str, after: int = 0, limit: int = 1000) -> list[StoredEntry]:
        """The entries of *run* with a label number above *after*, in the order of their intents."""
        rows = await self._pool.fetch(
            _ENTRIES + "where run = $1 and label > $2 order by label limit $3", run, after, limit
        )
        return [_stored(row) for row in rows]

    async def newest_of_run(self, run: str, before: int | None, limit: int) -> list[StoredEntry]:
        """The entries of *run* with a label number below *before*, the newest first."""
        rows = await self._pool.fetch(
            _ENTRIES + "where run = $1 and label < coalesce($2, 2147483647) order by label desc limit $3",
            run,
            before,
            limit,
        )
        return [_stored(row) for row in rows]

    async def unsettled(self, campaign: str) -> list[StoredEntry]:
        """The campaign's entries whose end is still open, reversals that were not verified included."""
        rows = await self._pool.fetch(
            _ENTRIES + "where campaign = $1 and status = any($2) order by created_at, id",
            campaign,
            list(UNSETTLED),
        )
        return [_stored(row) for row in rows]

    async def now(self) -> datetime:
        """The database's clock."""
        now: datetime = await self._pool.fetchval("select clock_timestamp()")
        return now

    async def heads(self, campaign: str, moved_since: datetime | None = None) -> tuple[list[Head], datetime]:
        """The published heads of a campaign's streams, and the database's time then.

        Those that moved since *moved_since* or a little before.
        """
        since = None if moved_since is None else moved_since - COMMIT_ORDER_MARGIN
        rows = await self._pool.fetch(_HEADS, campaign, since)
        return [_head(row) for row in rows if row["stream"] is not None], rows[0]["now"]

    async def streams(
        self, campaign: str | None = None, cursor: str | None = None, limit: int = 500
    ) -> tuple[list[Head], str | None]:
        """A page of all streams by name, and the cursor of the next page (None: that was the last)."""
        rows = await self._pool.fetch(
            "select stream, campaign, kind, published_seq, published_hash from streams "
            "where ($1::text is null or campaign = $1) and ($2::text is null or stream > $2) order by stream limit $3",
            campaign,
            cursor,
            limit + 1,
        )
        page = [_head(row) for row in rows[:limit]]
        return page, page[-1].stream if len(rows) > limit else None

    async def events(self, stream: str, after: int = 0, limit: int = 500) -> list[dict[str, Any]]:
        """The published records of *stream* above seq *after* as CloudEvents, in order."""
        return [document_of(record) for record in await self.records(stream, after, limit, published=True)]

    async def records(self, stream: str, after: int = 0, limit: int = 1000, *, published: bool = False) -> list[Record]:
        """The next records of *stream* above seq *after*, in order: up to *limit*, and fewer where they are large."""
        rows = await self._pool.fetch(_NEXT, stream, after, limit, published, MAX_RECORD_BYTES)
        return [Record(*row) for row in rows]

    async def record(self, id_: str) -> Record | None:
        """The record with that id, or None: how a caller learns what became of a commit whose answer it never saw."""
        row = await self._pool.fetchrow(_RECORDS + "where id = $1", id_)
        return None if row is None else Record(*row)


def _stored(row: Any) -> StoredEntry:
    return StoredEntry(
        row["id"],
        row["run"],
        row["campaign"],
        row["status"],
        row["serial_key"],
        row["write"],
        row["kind"],
        row["reverts"],
        row["label"],
        row["view_seq"],
        body_of(row["view"]),
        row["lease_until"],
        row["created_at"],
        row["concluded_at"],
    )


def _head(row: Any) -> Head:
    return Head(row["stream"], row["campaign"], row["kind"], row["published_seq"], (row["published_hash"] or b"").hex())
