"""A tool server over documents and pages in PostgreSQL, made with the SDK, that can misbehave when something is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg

from takeback.toolserver import PostgresStore, ToolServer

SCHEMA = """
create table docs (id text primary key, title text, body text, rev integer not null default 1);
create table pages (id text primary key, doc text not null, rev integer not null default 1);
create table effects (id bigint generated always as identity primary key, what text not null);
insert into docs (id, title, body) select 'd' || n, 'title', 'body' from generate_series(1, 10) as n;
insert into pages (id, doc) values ('p1', 'nowhere');
"""


class Office(ToolServer):
    """A tool server over documents. *mode* says how it treats an undo: honest, lie, lose, slow, die, refuse."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        super().__init__("office", store=PostgresStore(pool))
        self.mode = "honest"
        self.undone: list[dict[str, Any]] = []
        self.go_on = asyncio.Event()
        self._pool = pool
        self.during: Callable[[], Any] | None = None

    async def undo(self, arguments: Any) -> dict[str, Any]:
        """The SDK's undo, unless told otherwise."""
        self.undone.append(arguments)
        if self.during is not None:
            await self.during()
        match self.mode:
            case "lie":
                return {"outcome": "reverted"}
            case "unkeepable":
                await super().undo(arguments)
                return {"outcome": "reverted", "detail": "\x00", "sideEffects": ["\x00"]}
            case "gibberish":
                return {"outcome": "compensated, more or less"}
            case "die":
                raise RuntimeError("the tool server died before it did anything")
            case "lose":
                await super().undo(arguments)
                await asyncio.sleep(3600)
            case "slow":
                await self.go_on.wait()
        return await super().undo(arguments)


def office(pool: asyncpg.Pool) -> Office:
    """The server over a database with SCHEMA."""
    server = Office(pool)
    doc = server.record("office://doc/{doc_id}", version="rev")

    @doc.read
    async def _(tx: Any, doc_id: str) -> dict[str, Any] | None:
        row = await tx.fetchrow("select title, body, rev from docs where id = $1 for update", doc_id)
        return None if row is None else dict(row)

    @doc.restore
    async def _(tx: Any, doc_id: str, before: dict[str, Any] | None) -> dict[str, Any] | None:
        await tx.execute("insert into effects (what) values ($1)", f"undo {doc_id}")
        if before is None:
            await tx.execute("delete from docs where id = $1", doc_id)
            return None
        if await tx.fetchval("select true from docs where id = $1", doc_id):
            await tx.execute(
                "update docs set title = $2, body = $3, rev = rev + 1 where id = $1",
                doc_id,
                before["title"],
                before["body"],
            )
            return None
        made = doc_id if not doc_id.startswith("tmp") else f"{doc_id}x"
        await tx.execute(
            "insert into docs (id, title, body) values ($1, $2, $3)", made, before["title"], before["body"]
        )
        return {"doc_id": made}

    @server.operation(record=doc, tier="medium", window="P7D", undo_side_effects=["the readers are told"])
    async def edit(tx: Any, doc_id: str, title: str | None = None, body: str | None = None) -> dict[str, Any]:
        """Edit a document."""
        await tx.execute("insert into effects (what) values ($1)", f"edit {doc_id}")
        await tx.execute(
            "update docs set title = coalesce($2, title), body = coalesce($3, body), rev = rev + 1 where id = $1",
            doc_id, title, body,
        )  # fmt: skip
        return {"docId": doc_id}

    @server.operation(record=doc, tier="medium", window="P7D")
    async def create(tx: Any, doc_id: str, title: str) -> dict[str, Any]:
        """Write a new document."""
        await tx.execute("insert into docs (id, title, body) values ($1, $2, '')", doc_id, title)
        return {"docId": doc_id}

    @server.operation(record=doc, tier="high", window="P7D")
    async def remove(tx: Any, doc_id: str) -> dict[str, Any]:
        """Delete a document."""
        await tx.execute("delete from docs where id = $1", doc_id)
        return {"docId": doc_id}

    @server.operation(record=doc, window="PT1S")
    async def blink(tx: Any, doc_id: str) -> dict[str, Any]:
        """Edit a document; it can be taken back for a second."""
        await tx.execute("update docs set title = 'blink', rev = rev + 1 where id = $1", doc_id)
        return {"docId": doc_id}

    @server.operation(record=doc, tier="high", window="P7D", undo_authority="ann")
    async def publish(tx: Any, doc_id: str) -> dict[str, Any]:
        """Publish a document; only ann, or an owner, may take it back."""
        await tx.execute("update docs set title = 'published', rev = rev + 1 where id = $1", doc_id)
        return {"docId": doc_id}

    page = server.record("office://page/{page_id}", version="rev")

    @page.read
    async def _(tx: Any, page_id: str) -> dict[str, Any] | None:
        row = await tx.fetchrow("select doc, rev from pages where id = $1 for update", page_id)
        return None if row is None else dict(row)

    @page.restore
    async def _(tx: Any, page_id: str, before: dict[str, Any]) -> None:
        await tx.execute("update pages set doc = $2, rev = rev + 1 where id = $1", page_id, before["doc"])

    @server.operation(record=[doc, page], window="P7D")
    async def move(tx: Any, doc_id: str, page_id: str) -> dict[str, Any]:
        """Move a page into a document: both are changed."""
        await tx.execute("update docs set title = 'moved to', rev = rev + 1 where id = $1", doc_id)
        await tx.execute("update pages set doc = $2, rev = rev + 1 where id = $1", page_id, doc_id)
        return {}

    @server.operation(record=doc, window="P7D", secret=["body"])
    async def whisper(tx: Any, doc_id: str, body: str) -> dict[str, Any]:
        """Write what not everybody may read."""
        await tx.execute("update docs set body = $2, rev = rev + 1 where id = $1", doc_id, body)
        return {"docId": doc_id}

    return server
