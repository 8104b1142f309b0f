"""The recorder's first schema: the journal, its projections, and what decides a call."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables, then the function that appends to them."""
    execute_script(op.get_bind(), (files("recorder.migrations") / "versions/0001_schema.sql").read_text())
    execute_script(op.get_bind(), (files("recorder.journal") / "append_v1.sql").read_text())


def downgrade() -> None:
    """A journal is not taken back: drop the database instead."""
    raise NotImplementedError("the first version has nothing under it")
