"""The recorder's tables, as SQLAlchemy Core knows them. The migrations make them; a test holds the two against each other.

`records`, `streams`, `entries`, `entry_resources`, `outbox`, `fences` are written by `journal/append_v1.sql` and
`append_step_v1.sql` alone. In the transactions of `Journal.transaction` use the connection's own `execute`; elsewhere an
engine of `takeback.database.engine`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

SCHEMA = "recorder"
metadata = MetaData(schema=SCHEMA)
_NOW = func.now()


def _key(name: str) -> Column[str]:
    return Column(name, Text, primary_key=True)


def _text(name: str, *, null: bool = False) -> Column[str]:
    return Column(name, Text, nullable=null)


def _time(name: str, *, null: bool = False, now: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=null, server_default=_NOW if now else None)


def _json(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, JSONB, nullable=null)


def _one_of(column: str, *values: str) -> CheckConstraint:
    return CheckConstraint(f"{column} in ({', '.join(repr(value) for value in values)})")


# The journal and its projections

records = Table(
    "records",
    metadata,
    _key("stream"),
    Column("seq", BigInteger, primary_key=True),
    _text("id"),
    _text("campaign"),
    _text("type"),
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("previous_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    _text("entry", null=True),
    Column("label", Integer),
    Column("after", BigInteger),
    Column("published", Boolean, nullable=False),
    Index("records_id", "id"),
    postgresql_partition_by="range (at)",
)

streams = Table(
    "streams",
    metadata,
    _key("stream"),
    _text("campaign"),
    _text("kind"),
    Column("status", Text, nullable=False, server_default="open"),
    Column("seq", BigInteger, nullable=False, server_default=text("0")),
    Column("hash", LargeBinary, nullable=False, server_default=text("decode(repeat('00', 32), 'hex')")),
    _time("at", null=True),
    Column("published_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("published_hash", LargeBinary),
    _time("published_at", null=True),
    Column("labels", Integer, nullable=False, server_default=text("0")),
    Index("streams_moved", "campaign", "published_at"),
)

entries = Table(
    "entries",
    metadata,
    _key("id"),
    _text("run"),
    _text("campaign"),
    _text("interaction", null=True),
    _text("server"),
    _text("operation"),
    _text("tier", null=True),
    _text("kind"),
    _text("principal"),
    _text("agent"),
    _text("status"),
    _text("serial_key", null=True),
    Column("write", Boolean, nullable=False),
    _text("reverts", null=True),
    _text("arguments_hash", null=True),
    Column("label", Integer, nullable=False),
    Column("view_seq", BigInteger, nullable=False),
    Column("view", LargeBinary, nullable=False),
    _time("lease_until", null=True),
    _time("created_at"),
    _time("concluded_at", null=True),
    Index("entries_label", "run", "label", unique=True),
    Index(
        "entries_pending_writer",
        "serial_key",
        unique=True,
        postgresql_where=text("status = 'pending' and write and serial_key is not null"),
    ),
    Index(
        "entries_claim",
        "reverts",
        unique=True,
        postgresql_where=text("reverts is not null and status in ('pending', 'in_doubt', 'unverified', 'committed')"),
    ),
    Index("entries_reverts", "reverts", postgresql_where=text("reverts is not null")),
    Index(
        "entries_unsettled",
        "campaign",
        "status",
        postgresql_where=text("status in ('awaiting_approval', 'pending', 'in_doubt', 'reverting', 'unverified')"),
    ),
    Index("entries_lease", "lease_until", postgresql_where=text("status = 'pending'")),
    Index("entries_interaction", "campaign", "interaction", postgresql_where=text("interaction is not null")),
    Index("entries_created", "campaign", "created_at"),
)

entry_resources = Table(
    "entry_resources",
    metadata,
    _key("entry"),
    _key("resource"),
    _key("role"),
    _text("campaign"),
    _text("version", null=True),
)
Index("entry_resources_resource", entry_resources.c.campaign, func.md5(entry_resources.c.resource))

outbox = Table(
    "outbox",
    metadata,
    _key("id"),
    _text("stream"),
    Column("seq", BigInteger, nullable=False),
    _time("at"),
    Index("outbox_at", "at", "stream", "seq"),
)

fences = Table("fences", metadata, _key("serial_key"), Column("value", BigInteger, nullable=False))

# What decides a call

campaigns = Table(
    "campaigns",
    metadata,
    _key("id"),
    _text("name"),
    _text("serialize"),
    _text("owner"),
    _time("created_at", now=True),
    _one_of("serialize", "campaign", "run", "resource", "none"),
)

members = Table(
    "members",
    metadata,
    _key("campaign"),
    _key("sub"),
    _text("role"),
    _text("email", null=True),
    _one_of("role", "owner", "approver", "member"),
    Index("members_sub", "sub"),
)

agents = Table(
    "agents",
    metadata,
    _key("campaign"),
    _key("name"),
    Column("memory", Text, nullable=False, server_default="unknown"),
    _json("operations", null=True),
    _json("principals", null=True),
    _one_of("memory", "yes", "no", "unknown"),
)

servers = Table(
    "servers",
    metadata,
    _key("campaign"),
    _key("name"),
    _json("transport"),
    _json("manifest", null=True),
    _json("capabilities", null=True),
    _time("changed_at", now=True),
)

operations = Table(
    "operations",
    metadata,
    _key("campaign"),
    _key("server"),
    _key("operation"),
    _json("definition"),
    _text("source"),
    _text("pin"),
    _time("pinned_at", now=True),
    Column("place", Integer, nullable=False, server_default=text("0")),
    _one_of("source", "declared", "manifest", "none"),
)

exercised = Table(
    "exercised",
    metadata,
    _key("campaign"),
    _key("server"),
    _key("operation"),
    _key("pin"),
    _text("entry", null=True),
    _time("at", now=True),
)

policies = Table(
    "policies",
    metadata,
    _key("campaign"),
    _json("policy"),
    _text("digest"),
    _text("changed_by"),
    _time("changed_at", now=True),
)

calendars = Table("calendars", metadata, _key("campaign"), _key("sub"), _json("calendar"))

runs = Table(
    "runs",
    metadata,
    _key("id"),
    _text("campaign"),
    _text("agent"),
    _text("model"),
    _text("principal"),
    _text("opened_by"),
    _text("opened_by_kind"),
    _json("money_cap", null=True),
    _json("worst_case", null=True),
    _time("opened_at", now=True),
    _time("closed_at", null=True),
    Index("runs_campaign", "campaign", "opened_at"),
)

interactions = Table("interactions", metadata, _key("campaign"), _key("id"), _text("run"))

approvals = Table(
    "approvals",
    metadata,
    _key("id"),
    Column("entry", Text, nullable=False, unique=True),
    _text("campaign"),
    _text("run"),
    _text("status"),
    _json("document"),
    _time("expires_at"),
    _time("created_at", now=True),
    _time("decided_at", null=True),
    _text("claimed_by", null=True),
    _time("claimed_until", null=True),
    _time("fetched_at", null=True),
    _one_of("status", "pending", "approved", "denied", "expired", "forwarded"),
    Index("approvals_status", "campaign", "status"),
    Index("approvals_due", "status", "expires_at", postgresql_where=text("status in ('pending', 'approved')")),
    Index("approvals_unfetched", "run", postgresql_where=text("fetched_at is null")),
)

idempotency = Table(
    "idempotency",
    metadata,
    _key("sub"),
    _key("path"),
    _key("key"),
    _text("body_hash"),
    _text("entry"),
    _time("created_at", now=True),
    Index("idempotency_created", "created_at"),
)

# Reversals: the queue, leased by one recorder at a time, and what they hold still

reversals = Table(
    "reversals",
    metadata,
    _key("id"),
    _text("campaign"),
    _text("status"),
    _json("decision"),
    _json("result", null=True),
    _text("claimed_by", null=True),
    _time("claimed_until", null=True),
    _time("created_at", now=True),
    _time("finished_at", null=True),
    _one_of("status", "queued", "running", "completed", "stale", "failed"),
    Index("reversals_due", "created_at", postgresql_where=text("status in ('queued', 'running')")),
)

holds = Table(
    "holds", metadata, _key("campaign"), _key("resource"), _text("reversal"), Index("holds_reversal", "reversal")
)

# Who was refused, and the campaigns' keys

security_log = Table(
    "security_log",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _text("campaign"),
    _time("at", now=True),
    _text("sub"),
    _text("kind"),
    _text("what"),
    _json("detail", null=True),
    Index("security_log_campaign", "campaign", "id"),
)

campaign_keys = Table(
    "campaign_keys",
    metadata,
    _key("campaign"),
    Column("wrapped", LargeBinary, nullable=False),
    _time("created_at", now=True),
)
