"""The notifier's first schema: its projection of the journal, the feed of the live streams, and what it has announced."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    execute_script(op.get_bind(), (files("notifier.migrations") / "versions/0001_schema.sql").read_text())


def downgrade() -> None:
    """What was announced stays announced: drop the database instead."""
    raise NotImplementedError("the first version has nothing under it")
