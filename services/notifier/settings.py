"""What the notifier is told by its environment."""

from __future__ import annotations

from pydantic import Field

from takeback.settings import ServiceSettings


class Settings(ServiceSettings):
    """The notifier's settings (contract.md, Settings). Durations are seconds."""

    catch_up_seconds: float = Field(default=5.0, gt=0)
    """How long a question waits for the projection to reach the journal before it is told `behind`."""
    feed_retention_seconds: float = Field(default=7 * 86400.0, gt=0)
    """How far back a live stream can be resumed."""
    stream_queue_events: int = Field(default=1000, gt=0)
    """How many events wait for one client before it is dropped as too slow."""
    stream_send_seconds: float = Field(default=10.0, gt=0)
    """How long one event may take to leave for a client before its connection is closed."""
    ticket_seconds: float = Field(default=30.0, gt=0)
    """How long a ticket opens a live stream."""
