"""The security log: who tried what without the authority for it (G7)."""

from __future__ import annotations

from typing import Any

import asyncpg
import structlog

from takeback import json
from takeback.auth import Caller
from takeback.errors import Problem, not_authorised

log = structlog.get_logger()
_PAGE = 200


class SecurityLog:
    """Written before the refusal is answered, read by owners."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def write(self, campaign: str, caller: Caller, what: str, entry: str | None = None) -> None:
        """Keeps that *caller* was refused *what* in *campaign*, over *entry* where there is one."""
        detail = json.dumps({"entry": entry}).decode() if entry else None
        await self._pool.execute(
            "insert into security_log (campaign, sub, kind, what, detail) values ($1, $2, $3, $4, $5)",
            campaign, caller.sub, caller.kind, what, detail,
        )  # fmt: skip
        log.warning("refused", campaign=campaign, sub=caller.sub, kind=caller.kind, what=what, entry=entry)

    async def refuse(self, campaign: str, caller: Caller, what: str, entry: str | None = None) -> Problem:
        """Keeps the attempt and gives the 403 to raise."""
        await self.write(campaign, caller, what, entry)
        return not_authorised(what)

    async def read(self, campaign: str, before: int | None) -> dict[str, Any]:
        """A page of the log, newest first, from before the row *before*."""
        rows = await self._pool.fetch(
            "select id, at, sub, kind, what, detail from security_log"
            " where campaign = $1 and id < coalesce($2, 9223372036854775807) order by id desc limit $3",
            campaign, before, _PAGE + 1,
        )  # fmt: skip
        items = [
            {
                "id": row["id"],
                "at": row["at"],
                "sub": row["sub"],
                "kind": row["kind"],
                "what": row["what"],
                **(json.loads(row["detail"]) if row["detail"] else {}),
            }
            for row in rows[:_PAGE]
        ]
        return {"items": items, **({"next": str(items[-1]["id"])} if len(rows) > _PAGE else {})}
