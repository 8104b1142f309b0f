"""What the notifier is told by its environment."""

from __future__ import annotations

import hmac
import os

from pydantic import Field

from notifier.console.oidc import Client
from notifier.deliveries.composition import Terms
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
    console_api_url: str | None = None
    """Where the console finds the HTTP API: the edge, inside the network. None: on the port that a page was asked at."""
    console_session_seconds: float = Field(default=12 * 3600.0, gt=0)
    """How long somebody stays signed in to the console, at the longest."""
    oidc_client_id: str | None = None
    """The console's client at the OIDC issuer; without it people sign in with a token."""
    oidc_client_secret: str | None = None
    oidc_scopes: str = "openid"
    """What the console asks the issuer for, separated by blanks."""
    reminder_poll_seconds: float = Field(default=0.5, gt=0)
    """How often a notifier looks for what is due in time, at the least."""
    webhook_allow_private: bool = False
    """Whether webhooks and calendars' feeds may be at addresses of this machine and its network."""
    smtp_url: str = ""
    """Where e-mail goes out (``smtp://user:password@host:port``, ``smtps://…``); without it letters wait in the ledger."""
    smtp_from: str = "takeback@localhost"
    """The sender's address."""
    public_url: str = ""
    """Where people find the console, for the links in letters; without it letters carry none."""
    webhook_retry_seconds: str = "5,30,300,1800,7200,18000,36000"
    """How long a delivery waits before each further try; one number is the first wait, doubled each time."""
    delivery_deadline_seconds: float = Field(default=15.0, gt=0)
    """How long one attempt to deliver may take."""
    delivery_retention_seconds: float = Field(default=90 * 86400.0, gt=0)
    """How long the ledger keeps what was concluded, dead letters among it."""
    delivery_poll_seconds: float = Field(default=0.5, gt=0)
    """How often a notifier looks for deliveries that wait, at the least."""
    ticket_seconds: float = Field(default=30.0, gt=0)
    """How long a ticket opens a live stream."""

    def console_client(self) -> Client | None:
        """The console as the issuer knows it, None where people sign in with a token.

        The key that seals a sign-in under way follows from the client's secret, so that all replicas have it; without a
        secret it lasts as long as the process.
        """
        if not (self.oidc_issuer and self.oidc_client_id):
            return None
        secret = self.oidc_client_secret
        key = hmac.digest(secret.encode(), b"takeback console sign-in", "sha256") if secret else os.urandom(32)
        return Client(self.oidc_issuer, self.oidc_client_id, secret, self.oidc_scopes, key)

    def deliveries(self) -> Terms:
        """How deliveries go out; raises ValueError for waits that are none."""
        return Terms(
            smtp_url=self.smtp_url,
            smtp_from=self.smtp_from,
            public_url=self.public_url,
            retry_seconds=self.webhook_retry_seconds,
            deadline_seconds=self.delivery_deadline_seconds,
            retention_seconds=self.delivery_retention_seconds,
            poll_seconds=self.delivery_poll_seconds,
            allow_private=self.webhook_allow_private,
        )
