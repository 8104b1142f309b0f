"""How long the notifier remembers what it told, so that a replay tells nothing again: pure (N5, N7; decision 0022)."""

from __future__ import annotations

from datetime import datetime, timedelta

REMEMBERED = timedelta(days=90)
"""What happened longer ago is told only when the feed has never had it, or not at all."""
KEPT = REMEMBERED + timedelta(days=1)
"""How long the ledgers' rows are kept: a day more than anybody asks for them, should two servers' clocks differ."""


def is_remembered(happened_at: datetime, now: datetime) -> bool:
    """Whether the ledgers still know what was told of something that happened then."""
    return now - happened_at < REMEMBERED
