"""Exporting a stream as a Run Record: its records as they were hashed, and a head signed anew each time (J13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from recorder.journal.checkpoints import CheckpointBroken, Checkpoints
from recorder.journal.reading import JournalReader
from recorder.journal.record_file import PAYLOAD_TYPE, head_of, line_of
from takeback import json
from takeback.errors import Problem, not_found

PAGE = 500


class Exporter:
    """Writes Run Records; *checkpoints* holds what it has signed for before."""

    def __init__(self, pool: asyncpg.Pool, checkpoints: Checkpoints) -> None:
        self._pool = pool
        self._reader = JournalReader(pool)
        self._checkpoints = checkpoints

    async def export(self, stream: str) -> AsyncIterator[bytes]:
        """The lines of *stream*'s Run Record as it stands now; await it, then iterate.

        Raises `Problem` 404 for no such stream, and 409 ``export-refused`` when the journal no longer holds what the newest
        checkpoint signed for (a cut tail, an older backup): nothing is signed then.
        """
        head = await self._pool.fetchrow(
            "select stream, campaign, status, seq, hash, clock_timestamp() as now from streams where stream = $1",
            stream,
        )
        if head is None or head["seq"] == 0:
            await self._refuse_unless_extended(stream, 0)
            raise not_found()
        await self._refuse_unless_extended(stream, head["seq"])
        await asyncio.to_thread(self._checkpoints.add, [(stream, head["seq"], head["hash"].hex())], head["now"])
        return self._lines(head)

    async def checkpoint(self) -> int:
        """Put the heads of all streams that moved into a checkpoint; answers how many did."""
        newest = await asyncio.to_thread(self._checkpoints.streams)
        since = max((checkpoint.at for checkpoint in newest), default=None)
        rows = await self._pool.fetch(
            "select stream, seq, hash, clock_timestamp() as now from streams "
            "where seq > 0 and ($1::text is null or at >= $1::text::timestamptz - interval '1 minute') order by stream",
            since,
        )
        if not rows:
            return 0
        heads = [(row["stream"], row["seq"], row["hash"].hex()) for row in rows]
        return await asyncio.to_thread(self._checkpoints.add, heads, rows[0]["now"])

    async def _lines(self, head: Any) -> AsyncIterator[bytes]:
        stream, last = head["stream"], head["seq"]
        after = 0
        while after < last:
            records = await self._reader.records(stream, after, min(PAGE, last - after))
            if not records:
                break  # the head that follows says how many there should be
            for record in records:
                yield line_of(record) + b"\n"
            after = records[-1].seq
        statement = head_of(
            stream=stream,
            campaign=head["campaign"],
            seq=last,
            hash_=head["hash"].hex(),
            closed=head["status"] == "closed",
            exported_at=head["now"],
        )
        yield json.dumps(self._checkpoints.signer.sign(PAYLOAD_TYPE, statement)) + b"\n"

    async def _refuse_unless_extended(self, stream: str, seq: int) -> None:
        try:
            checkpoint = await asyncio.to_thread(self._checkpoints.newest, stream)
        except CheckpointBroken as error:
            raise Problem(409, "export-refused", f"{error} Nothing was signed.") from error
        if checkpoint is None:
            return
        kept = None
        if seq >= checkpoint.seq:
            kept = await self._pool.fetchval(
                "select hash from records where stream = $1 and seq = $2", stream, checkpoint.seq
            )
        if kept is None or kept.hex() != checkpoint.hash:
            raise Problem(
                409,
                "export-refused",
                f"The journal does not extend the checkpoint of {checkpoint.at}: record {checkpoint.seq} of {stream} is "
                f"{'missing' if kept is None else 'another one'}. Records were cut off or an older backup was put back. "
                "Nothing was signed and nothing was changed. Find the missing records before this is exported.",
            )
