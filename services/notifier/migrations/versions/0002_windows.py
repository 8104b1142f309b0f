"""Windows in time: when each is looked at, what was told of it, who is on duty, and the messages that wait to be sent."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    execute_script(op.get_bind(), (files("notifier.migrations") / "versions/0002_windows.sql").read_text())


def downgrade() -> None:
    """What was told stays told: the tables are left as they are."""
    raise NotImplementedError("what was told cannot be taken back: drop the database instead")
