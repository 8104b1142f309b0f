"""What the MCP door needs: which asked calls' answers are not fetched yet, and the order of a server's operations."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns; calls that were asked before count as not fetched."""
    execute_script(op.get_bind(), (files("recorder.migrations") / "versions/0002_mcp_door.sql").read_text())


def downgrade() -> None:
    """A release that does not know the columns works beside them: they are left."""
    raise NotImplementedError("the columns harm no older release: leave them")
