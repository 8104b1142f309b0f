"""What campaigns are called, for the letters about them."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table, with the names that the feed still has; a rebuild finds the others."""
    op.execute("create table campaigns (campaign text primary key, name text not null)")
    op.execute(
        "insert into campaigns select campaign, convert_from(event, 'UTF8')::jsonb #>> '{data,name}' from feed "
        "where type = 'campaign.opened' on conflict do nothing"
    )
    op.execute("grant select, insert, update, delete on campaigns to takeback_notifier")


def downgrade() -> None:
    """The names are in the journal."""
    op.execute("drop table campaigns")
