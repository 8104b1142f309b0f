"""Which entries are broken, so that the queue of reviews is found without reading each of them (J11, N2)."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

from takeback import json

revision = "0006"
down_revision = "0005"

_OPEN = "status = 'committed' and undo_kind = 'compensate' and kind not in ('read', 'reversal')"


def upgrade() -> None:
    """Add the column, filled from the entries that could be open, and an index that leads from a run to its windows."""
    connection = op.get_bind()
    op.execute("alter table entries add column unresolved boolean not null default false")
    rows = connection.execute(text(f"select entry, view from entries where {_OPEN}"))  # noqa: S608  the words above
    broken = [row.entry for row in rows if json.loads(bytes(row.view)).get("unresolved")]
    connection.execute(text("update entries set unresolved = true where entry = any(:broken)"), {"broken": broken})
    op.execute("drop index entries_open")
    op.execute(f"create index entries_open on entries (campaign, run, undo_by, place) where {_OPEN} and not unresolved")


def downgrade() -> None:
    """The column follows from the entries."""
    op.execute("drop index entries_open")
    op.execute("alter table entries drop column unresolved")
    op.execute(f"create index entries_open on entries (campaign, undo_by) where {_OPEN}")
