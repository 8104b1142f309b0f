"""One table, which the stub service may fill."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("create table recorder.starts (at timestamptz not null default now())")
    op.execute("grant usage on schema recorder to takeback_recorder")
    op.execute("grant select, insert on recorder.starts to takeback_recorder")
