"""What a call costs the database: append_v1 made anew, and bodies of the usual size kept in their rows as they are."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Replace the function, then settle how rows are stored."""
    execute_script(op.get_bind(), (files("recorder.journal") / "append_v1.sql").read_text())
    execute_script(op.get_bind(), (files("recorder.migrations") / "versions/0003_quicker_append.sql").read_text())


def downgrade() -> None:
    """The recorder calls the function by the arguments that its release knows."""
    raise NotImplementedError("go back with the database that you saved before the upgrade")
