"""A run's changes without its reads, which are most of a long run (N2)."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the index that reviews are read by."""
    op.execute("create index entries_changes on entries (run, place) where kind <> 'read'")


def downgrade() -> None:
    """Reviews only take longer without it."""
    op.execute("drop index entries_changes")
