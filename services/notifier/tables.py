"""The notifier's tables, as SQLAlchemy Core knows them. The migrations make them; a test holds the two against each other."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

SCHEMA = "notifier"
metadata = MetaData(schema=SCHEMA)


def _key(name: str) -> Column[str]:
    return Column(name, Text, primary_key=True)


def _text(name: str, *, null: bool = False) -> Column[str]:
    return Column(name, Text, nullable=null)


def _time(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=null)


def _bytes(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


# The projection: derived from the journal, and derived anew by `takeback rebuild notifier`
positions = Table("positions", metadata, _key("stream"), _number("seq"), _text("hash"))
members = Table("members", metadata, _key("campaign"), _key("sub"), _text("role"), _text("email", null=True))
agents = Table("agents", metadata, _key("campaign"), _key("name"))
campaigns = Table("campaigns", metadata, _key("campaign"), _text("name"))
runs = Table(
    "runs",
    metadata,
    _key("run"),
    _text("campaign"),
    _text("agent"),
    _text("principal"),
    _text("status"),
    _time("closed_at", null=True),
)
entries = Table(
    "entries",
    metadata,
    _key("entry"),
    _text("run"),
    _text("campaign"),
    _text("interaction", null=True),
    Column("place", Integer, nullable=False),
    _text("kind"),
    _text("status"),
    _bytes("view"),
    _text("server"),
    _text("operation"),
    _text("model"),
    _text("undo_kind"),
    _time("undo_by", null=True),
    Column("unresolved", Boolean, nullable=False),
)
acknowledgements = Table(
    "acknowledgements",
    metadata,
    _key("id"),
    _text("campaign"),
    _text("run"),
    Column("entries", ARRAY(Text), nullable=False),
    _text("by_sub"),
    _text("authority", null=True),
    _time("at"),
)
taken_back = Table(
    "taken_back", metadata, _key("entry"), _text("campaign"), _text("plan"), _text("category", null=True), _time("at")
)

# Windows in time: the agenda's own columns are found again by looking, everything else is derived from the journal
windows = Table(
    "windows",
    metadata,
    _key("entry"),
    _text("run"),
    _text("campaign"),
    _text("principal"),
    _time("opened_at"),
    _time("undo_by"),
    _text("undo_authority", null=True),
    _text("state"),
    _time("look_at"),
    _time("remind_at", null=True),
    _time("escalate_at", null=True),
)
notices = Table(
    "notices",
    metadata,
    _key("id"),
    _text("campaign"),
    _text("entry"),
    _time("undo_by"),
    _text("kind"),
    _text("recipient"),
    _time("delivered_at"),
)
lapses = Table(
    "lapses",
    metadata,
    _key("entry"),
    Column("undo_by", DateTime(timezone=True), primary_key=True),
    _text("campaign"),
    _text("lapsed"),
    _text("acknowledged_by", null=True),
)
calendars = Table("calendars", metadata, _key("campaign"), _key("sub"), _bytes("calendar"))
reminder_policies = Table(
    "reminder_policies",
    metadata,
    _key("campaign"),
    _number("lead_seconds"),
    _number("escalate_after_seconds"),
    _text("escalate_to"),
)
plans = Table("plans", metadata, _key("plan"), _text("campaign"), Column("entries", ARRAY(Text), nullable=False))
decisions = Table(
    "decisions",
    metadata,
    _key("id"),
    _text("campaign"),
    Column("entries", ARRAY(Text), nullable=False),
    _text("by_sub"),
    _text("authority", null=True),
    _time("at"),
)
PROJECTION = (
    positions, campaigns, members, agents, runs, entries, acknowledgements, taken_back, notices, lapses, calendars,
    reminder_policies, plans, decisions,
)  # fmt: skip

# The feed of the live streams, trimmed by age
feed_epoch = Table("feed_epoch", metadata, Column("single", Boolean, primary_key=True), _text("epoch"))
feed_heads = Table("feed_heads", metadata, _key("campaign"), _number("seq"))
feed = Table(
    "feed",
    metadata,
    _key("campaign"),
    Column("seq", BigInteger, primary_key=True),
    _text("id"),
    _text("type"),
    _bytes("event"),
    _time("at"),
)
fed = Table("fed", metadata, _key("stream"), _time("at"), _number("seq"))

# The notifier's own truth
announcements = Table(
    "announcements",
    metadata,
    _key("id"),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    _text("campaign"),
    _text("type"),
    _bytes("event"),
    _time("created_at"),
    _time("published_at", null=True),
)
outgoing = Table(
    "outgoing",
    metadata,
    _key("id"),
    _text("campaign"),
    _text("kind"),
    _text("recipient"),
    _bytes("payload"),
    _text("status"),
    _time("created_at"),
    _time("due_at"),
    _time("accepted_at", null=True),
    _time("recorded_at", null=True),
)
told = Table(
    "told",
    metadata,
    _key("entry"),
    Column("undo_by", DateTime(timezone=True), primary_key=True),
    _key("kind"),
    _key("recipient"),
    _text("message"),
)
role_changes = Table(
    "role_changes",
    metadata,
    _key("id"),
    _text("campaign"),
    _text("sub"),
    _text("was"),
    _text("role", null=True),
    _text("by_sub"),
    _time("at"),
)
tickets = Table(
    "tickets",
    metadata,
    Column("ticket_hash", LargeBinary, primary_key=True),
    _text("sub"),
    _text("kind"),
    _time("expires_at"),
)
sessions = Table(
    "sessions",
    metadata,
    Column("session_hash", LargeBinary, primary_key=True),
    _bytes("token"),
    _text("sub"),
    _time("expires_at"),
)
idempotency = Table(
    "idempotency",
    metadata,
    _key("sub"),
    _key("path"),
    _key("key"),
    _text("body_hash"),
    _bytes("answer"),
    _time("created_at"),
)
webhooks = Table(
    "webhooks",
    metadata,
    _key("campaign"),
    _key("name"),
    _text("channel"),
    _text("url"),
    Column("types", ARRAY(Text), nullable=False),
    _bytes("secret"),
    _text("disabled", null=True),
    _text("created_by"),
    _time("created_at"),
)
deliveries = Table(
    "deliveries",
    metadata,
    _key("id"),
    _text("campaign"),
    _text("channel"),
    _text("target"),
    _text("type"),
    _text("about"),
    _text("message", null=True),
    _bytes("payload"),
    _text("status"),
    Column("attempts", Integer, nullable=False),
    _time("due_at"),
    _text("batch", null=True),
    _text("error", null=True),
    _time("created_at"),
    _time("concluded_at", null=True),
)
