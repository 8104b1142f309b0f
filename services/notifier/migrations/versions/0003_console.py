"""What the console and the questions of the journal need: columns to count by, reversals' categories, sessions."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns and the tables; what is projected already is filled in from the entries' views."""
    execute_script(op.get_bind(), (files("notifier.migrations") / "versions/0003_console.sql").read_text())


def downgrade() -> None:
    """An older notifier does not mind the columns, but it does not fill them: rebuild it from the journal instead."""
    raise NotImplementedError("drop the notifier's schema and rebuild it from the journal")
