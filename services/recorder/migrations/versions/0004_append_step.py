"""A call's step that is alone in its group has a function of its own; in a group what ends makes room before others take it."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the function beside the one that takes any group, which is made anew."""
    execute_script(op.get_bind(), (files("recorder.journal") / "append_v1.sql").read_text())
    execute_script(op.get_bind(), (files("recorder.journal") / "append_step_v1.sql").read_text())


def downgrade() -> None:
    """A release that does not know the function does not call it: it is left."""
    raise NotImplementedError("the function harms no older release: leave it")
