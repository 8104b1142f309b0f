"""The planner's first schema: its projection of the journal."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    execute_script(op.get_bind(), (files("planner.migrations") / "versions/0001_schema.sql").read_text())


def downgrade() -> None:
    """A projection is not taken back: drop the schema and rebuild it instead."""
    raise NotImplementedError("the first version has nothing under it")
