"""The delivery ledger: what goes to whom over which channel, and the webhooks that campaigns have named."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

from takeback.database import execute_script

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables."""
    execute_script(op.get_bind(), (files("notifier.migrations") / "versions/0004_deliveries.sql").read_text())


def downgrade() -> None:
    """What was delivered stays delivered: drop the database instead."""
    raise NotImplementedError("deliveries are the notifier's own truth")
