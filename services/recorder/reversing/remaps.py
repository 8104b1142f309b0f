"""Under which name a record is known now, where taking back made it again under another (design.md, Serialization)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import asyncpg

from takeback import json

_REVERSALS = """
select e.view from entry_resources r join entries e on e.id = r.entry
where r.campaign = $1 and md5(r.resource) = any($2) and r.role = 'changes'
  and e.kind = 'reversal' and e.status in ('committed', 'reverted')
order by e.concluded_at
"""


async def current_names(pool: asyncpg.Pool, campaign: str, resources: Sequence[str]) -> dict[str, str]:
    """For each of *resources* that was made again under another name: that name, followed to the last one."""
    moved: dict[str, str] = {}
    asked: set[str] = set()
    wanted = set(resources)
    while wanted:
        digests = [hashlib.md5(name.encode(), usedforsecurity=False).hexdigest() for name in wanted]
        rows = await pool.fetch(_REVERSALS, campaign, digests)
        asked |= wanted
        for row in rows:
            for remap in json.loads(row["view"]).get("remaps", ()):
                moved[remap["from"]] = remap["to"]
        wanted = set(moved.values()) - asked
    return {name: _last(name, moved) for name in resources if name in moved}


def _last(name: str, moved: dict[str, str]) -> str:
    seen = {name}
    while moved.get(name, name) not in seen:
        name = moved[name]
        seen.add(name)
    return name
