"""The sales agent's memory, behind the recorder: a recall is a call like any other, and says what it was told from."""

from __future__ import annotations

import secrets
from typing import Any

import asyncpg

from takeback.toolserver import Call, PostgresStore, ToolServer
from takeback.toolserver.record import Tx


def memory_server(pool: asyncpg.Pool[Any]) -> ToolServer:
    """The memory's tools; *pool*'s search path is the schema `memory`."""
    server = ToolServer("memory", store=PostgresStore(pool))
    note_record = server.table("notes", resource="memory://acme/note/{note_id}", key="id", version="version")

    @server.operation(record=note_record, tier="low", window="P30D")
    async def remember(tx: Tx, call: Call, topic: str, note: str, sources: list[str] | None = None) -> dict[str, Any]:
        """Keep a note on a topic. *sources* are the records that it was learned from."""
        note_id = f"n-{secrets.token_hex(4)}"
        await tx.execute("insert into notes values ($1, $2, $3, $4)", note_id, topic, note, sources or [])
        for source in sources or []:
            call.used(source)
        return {"noteId": note_id, "topic": topic}

    @server.read()
    async def recall(tx: Tx, call: Call, topic: str) -> dict[str, Any]:
        """What is remembered of a topic, the newest note first."""
        rows = await tx.fetch("select id, note, sources from notes where topic = $1 order by written_at desc", topic)
        for row in rows:
            for source in (f"memory://acme/note/{row['id']}", *row["sources"]):
                call.used(source)
        return {"topic": topic, "notes": [row["note"] for row in rows]}

    return server
