"""The company as its own people see it: they enter deals and orders, and read what their applications hold now."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import asyncpg
import httpx

from examples.deal.post import letters

SCHEMA = Path(__file__).with_name("schema.sql")


async def prepare(connection: asyncpg.Connection[Any]) -> None:
    """Make the applications' tables where they do not exist yet."""
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock(hashtextextended('company', 0))")
        await connection.execute(SCHEMA.read_text())


class Company:
    """*crm* and *token*: the CRM's own API; *pool*: the other applications' database.

    *mailbox*: the Maildir of what was delivered; None where another mail server has it.
    """

    def __init__(self, crm: str, token: str, pool: asyncpg.Pool[Any], mailbox: Path | None) -> None:
        self._crm = httpx.AsyncClient(base_url=crm, headers={"Authorization": f"Bearer {token}"})
        self._pool = pool
        self._mailbox = mailbox

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._crm.aclose()

    async def enter_deal(self, deal: str, **fields: Any) -> dict[str, Any]:
        """Enter a deal, or put it back to how it was entered."""
        return await self._ask("PUT", deal, fields)

    async def edit_deal(self, deal: str, by: str, **fields: Any) -> dict[str, Any]:
        """A teammate changes a deal in the CRM, by hand: nothing of it passes the recorder."""
        return await self._ask("PATCH", deal, {"by": by, **fields})

    async def deal(self, deal: str) -> dict[str, Any]:
        """The deal as the CRM holds it now."""
        return await self._ask("GET", deal)

    async def enter_order(self, order: str, customer: str, paid: str, currency: str) -> None:
        """Enter a paid order, nothing of it paid back."""
        await self._pool.execute(
            "insert into payments.orders values ($1, $2, $3, 0, $4) on conflict (id) do update set "
            "customer = excluded.customer, paid = excluded.paid, refunded = 0, currency = excluded.currency",
            *(order, customer, Decimal(paid), currency),
        )

    async def order(self, order: str) -> dict[str, Any]:
        """The order as the payments application holds it now."""
        row = await self._pool.fetchrow(
            "select id, paid::text, refunded::text, currency from payments.orders where id = $1", order
        )
        return dict(row) if row else {}

    async def meetings(self, deal: str) -> list[dict[str, Any]]:
        """The meetings about a deal that are in the calendar now."""
        return [dict(row) for row in await self._pool.fetch("select * from calendar.meetings where deal = $1", deal)]

    async def delivered(self, to: str, last: str, *, seconds: float = 10) -> list[str]:
        """The subjects of what *to* has received, the oldest first, once the letter *last* has come.

        Where another mail server keeps the letters: of what it has taken. Raises TimeoutError when *last* has not come
        in so many *seconds*.
        """
        async with asyncio.timeout(seconds):
            while True:
                subjects = await self._letters(to)
                if last in subjects:
                    return subjects
                await asyncio.sleep(0.02)

    async def _letters(self, to: str) -> list[str]:
        if self._mailbox is not None:
            return [str(letter["Subject"]) for letter in letters(self._mailbox, to)]
        rows = await self._pool.fetch(
            "select subject, sent_at as at from mail.sent where recipient = $1 union all "
            "select subject, posted_at from calendar.letters where recipient = $1 and posted_at is not null order by at",
            to,
        )
        return [row["subject"] for row in rows]

    async def _ask(self, method: str, deal: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = await self._crm.request(method, f"/deals/{deal}", json=body)
        return dict(answer.raise_for_status().json())
