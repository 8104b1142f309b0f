"""A call through the MCP door counts on what is remembered only while nothing of its run waits to be fetched (S13)."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make both functions anew. The release before goes on calling them: what is new in their arguments may be left out."""
    execute_script(op.get_bind(), (files("recorder.journal") / "append_v1.sql").read_text())
    execute_script(op.get_bind(), (files("recorder.journal") / "append_step_v1.sql").read_text())


def downgrade() -> None:
    """An older release leaves out what it does not know: the functions are left."""
    raise NotImplementedError("the functions harm no older release: leave them")
