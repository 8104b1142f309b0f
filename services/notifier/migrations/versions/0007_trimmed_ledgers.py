"""The ledgers of what was told are trimmed by age (decision 0022)."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Let the service delete from them, and find what is old."""
    op.execute("grant delete on announcements to takeback_notifier")
    op.execute("create index announcements_published on announcements (published_at) where published_at is not null")
    op.execute("create index outgoing_created on outgoing (created_at)")
    op.execute("create index told_undo_by on told (undo_by)")


def downgrade() -> None:
    """What was trimmed stays away."""
    op.execute("drop index announcements_published, outgoing_created, told_undo_by")
    op.execute("revoke delete on announcements from takeback_notifier")
