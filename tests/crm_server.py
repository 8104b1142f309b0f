"""A tool server built with the SDK, as an application author would: what the SDK's and the port's tests talk to.

Run as a program it serves MCP over stdin and stdout; the database's URL is in CRM_DATABASE.
"""

import asyncio
import os
from typing import Any

import asyncpg

from takeback.toolserver import Call, OperationError, PostgresStore, ToolServer

SCHEMA = """
create table deals (
    id text primary key default 'D-' || floor(random() * 1e9)::text,
    title text not null,
    stage text not null default 'new',
    amount numeric(12, 2),
    closed_at timestamptz,
    weight numeric,
    tags jsonb not null default '[]',
    shouted text generated always as (upper(title)) stored
);
create table accounts (id bigint generated always as identity primary key, balance integer not null check (balance >= 0));
create table notes (id uuid primary key default gen_random_uuid(), deal text not null, text text not null);
create table events (id bigint generated always as identity primary key, hero text not null, what text not null);
create table mails (recipient text not null, subject text not null);
create table runs (what text not null);
"""

ROWS = """
insert into deals (id, title, stage, amount, weight, tags)
values ('D-881', 'Harbour', 'won', 1200.50, 12345678901234567890.1234567890123, '["a"]');
insert into accounts (balance) values (100);
insert into notes (id, deal, text) values ('11111111-1111-1111-1111-111111111111', 'D-881', 'call them');
insert into events (hero, what) values ('rogue', 'born');
"""

EMPTY = """
truncate deals, accounts, notes, events, mails, runs, takeback_answers, takeback_fences, takeback_tokens
restart identity cascade;
"""


def build(pool: asyncpg.Pool) -> ToolServer:
    """The server over a database with SCHEMA."""
    server = ToolServer("crm", store=PostgresStore(pool), version="2.1")
    deal = server.table("deals", resource="crm://acme/deal/{deal_id}", key="id", ignore=["shouted"])
    account = server.table("accounts", resource="crm://acme/account/{account_id}", key="id")

    @server.operation(record=deal, tier="high", window="P7D", undo_side_effects=["the owner is told"])
    async def update_deal(tx: Any, call: Call, deal_id: str, stage: str, title: str | None = None) -> dict[str, Any]:
        """Move a deal to another stage."""
        if stage == "nonsense":
            raise OperationError("nonsense is no stage")
        await tx.execute("insert into runs values ($1)", f"update_deal {call.entry}")
        await tx.execute(
            "update deals set stage = $2, title = coalesce($3, title) where id = $1", deal_id, stage, title
        )
        call.broadcast({"type": "deal_updated", "dealId": deal_id})
        call.may_change_later("weight")
        return {"dealId": deal_id, "stage": stage}

    @server.operation(record=deal, window="P1D")
    async def create_deal(tx: Any, title: str) -> dict[str, Any]:
        """Open a deal."""
        return {"dealId": await tx.fetchval("insert into deals (title) values ($1) returning id", title)}

    @server.operation(record=deal, tier="critical", window="P1D", carries_before=True, undo_authority="owner")
    async def delete_deal(tx: Any, deal_id: str) -> dict[str, Any]:
        """Delete a deal."""
        await tx.execute("delete from deals where id = $1", deal_id)
        return {}

    @server.operation(record=account, money={"amount": "amount", "currency": "currency"}, secret=["card_number"])
    async def charge(
        tx: Any, account_id: int, amount: int, currency: str = "EUR", card_number: str = ""
    ) -> dict[str, Any]:
        """Take money from an account."""
        balance = await tx.fetchval(
            "update accounts set balance = balance - $2 where id = $1 returning balance", account_id, amount
        )
        return {"balance": balance}

    @server.operation(resource="game://table/{hero}/rest", tier="high", window="PT90S", uses=["game://table/{hero}"])
    async def rest(tx: Any, hero: str) -> str:
        """Rest."""
        await tx.execute("insert into events (hero, what) values ($1, 'slept'), ($1, 'ate')", hero)
        return "rested"

    @rest.snapshot
    async def _(tx: Any, hero: str) -> dict[str, Any]:
        rows = await tx.fetch("select id, what from events where hero = $1 order by id for update", hero)
        return {"events": [row["id"] for row in rows], "last": rows[-1]["what"] if rows else None}

    @rest.revert
    async def _(tx: Any, call: Call, hero: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        added = set(after["events"]) - set(before["events"])
        await tx.execute("delete from events where id = any($1::bigint[])", list(added))
        call.side_effect("the night is forgotten")

    @server.operation(resource="crm://acme/note/{note_id}", window="P1D")
    async def delete_note(tx: Any, note_id: str) -> dict[str, Any]:
        """Delete a note; made again it has another id."""
        await tx.execute("delete from notes where id = $1::text::uuid", note_id)
        return {}

    @delete_note.snapshot
    async def _(tx: Any, note_id: str) -> dict[str, Any] | None:
        row = await tx.fetchrow("select deal, text from notes where id = $1::text::uuid for update", note_id)
        return None if row is None else dict(row)

    @delete_note.revert
    async def _(tx: Any, note_id: str, before: dict[str, Any] | None) -> dict[str, Any] | None:
        if before is None:
            await tx.execute("delete from notes where id = $1::text::uuid", note_id)
            return None
        made = "insert into notes (deal, text) values ($1, $2) returning id::text"
        return {"note_id": await tx.fetchval(made, before["deal"], before["text"])}

    @server.operation(record=[deal, account], window="P1D")
    async def pay(tx: Any, deal_id: str, account_id: int) -> dict[str, Any]:
        """Close a deal and take its price."""
        await tx.execute("update deals set stage = 'paid' where id = $1", deal_id)
        await tx.execute("update accounts set balance = balance - 50 where id = $1", account_id)
        return {}

    @server.operation(resource="crm://acme/stubborn/{deal_id}")
    async def stubborn(tx: Any, deal_id: str) -> dict[str, Any]:
        """Change a deal; its revert forgets a field."""
        await tx.execute("update deals set stage = 'stuck', title = 'stuck' where id = $1", deal_id)
        return {}

    @stubborn.snapshot
    async def _(tx: Any, deal_id: str) -> dict[str, Any]:
        return dict(await tx.fetchrow("select stage, title from deals where id = $1 for update", deal_id))

    @stubborn.revert
    async def _(tx: Any, deal_id: str, before: dict[str, Any]) -> None:
        await tx.execute("update deals set stage = $2 where id = $1", deal_id, before["stage"])

    @server.operation(undo="none", external=True, side_effects=["a mail is sent"])
    async def send_mail(tx: Any, to: str, subject: str) -> dict[str, Any]:
        """Send a mail."""
        if to == "nobody":
            raise OperationError("nobody has no mailbox")
        if to == "crash":
            raise RuntimeError("the mail server hung up")
        await tx.execute("insert into mails values ($1, $2)", to, subject)
        return {"sent": True}

    @server.operation()
    async def undeclared(tx: Any) -> dict[str, Any]:
        """Do something of which nobody knows how to take it back."""
        await tx.execute("insert into runs values ('undeclared')")
        return {"none": None}

    @server.operation()
    async def broken(tx: Any) -> None:
        """Fail inside, after an effect."""
        await tx.execute("insert into runs values ('broken')")
        raise RuntimeError("a secret detail")

    @server.operation()
    async def slow(tx: Any, seconds: float) -> dict[str, Any]:
        """Take a while."""
        await tx.execute("insert into runs values ('slow')")
        await asyncio.sleep(seconds)
        return {}

    @server.read(record=deal)
    async def get_deal(tx: Any, call: Call, deal_id: str) -> dict[str, Any]:
        """Read a deal."""
        return dict(await tx.fetchrow("select title, stage from deals where id = $1", deal_id))

    @server.read()
    async def list_deals(tx: Any, call: Call) -> dict[str, Any]:
        """List the deals."""
        rows = await tx.fetch("select id, title from deals order by id")
        for row in rows:
            call.used(f"crm://acme/deal/{row['id']}")
        return {"deals": [dict(row) for row in rows]}

    return server


async def main() -> None:
    async with asyncpg.create_pool(os.environ["CRM_DATABASE"], min_size=1, max_size=4) as pool:
        await build(pool).serve_stdio()


if __name__ == "__main__":
    asyncio.run(main())
