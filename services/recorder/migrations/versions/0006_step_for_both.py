"""append_step_v1 is called by the release before as well as by this one, while one replaces the other."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the function anew: what 0005 added to its arguments may be left out."""
    execute_script(op.get_bind(), (files("recorder.journal") / "append_step_v1.sql").read_text())


def downgrade() -> None:
    """An older release leaves out what it does not know: the function is left."""
    raise NotImplementedError("the function harms no older release: leave it")
