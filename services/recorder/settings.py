"""What the recorder is told by its environment."""

from __future__ import annotations

from pydantic import Field

from takeback.settings import ServiceSettings


class Settings(ServiceSettings):
    """The recorder's settings (contract.md, Settings). Durations are seconds."""

    redis_url: str
    forward_deadline_seconds: float = Field(default=30.0, gt=0)
    """How long a forwarded call may take before its outcome is in doubt."""
    lock_wait_seconds: float = Field(default=10.0, gt=0)
    """How long a call waits for its serial key before it is told `campaign-busy`."""
    approval_seconds: float = Field(default=7 * 86400.0, gt=0)
    """How long an approval may be answered before it expires."""
    pin_check_seconds: float = Field(default=30.0, gt=0)
    """How often the definitions of a tool server in use are read again and held against their pins."""
    webhook_allow_private: bool = False
    """Whether calendars' feeds of absences may be at addresses of this machine and its network."""
    public_url: str = ""
    """Where people reach the console, for the links that MCP clients show; empty: where the client reached the recorder."""
    http_allow_private: bool = False
    """Whether tool servers with a URL (MCP and plain HTTP) may be at addresses of this machine and its network."""
    allow_commands: bool = False
    """Whether a campaign's owner may register a tool server as a command to start (MCP over stdio)."""
    server_admins: str = ""
    """Who may register tool servers, by sub, with commas between; empty: each campaign's owners may.

    Tool servers know the recorder, not the campaign: where campaigns do not trust each other, an owner could register a server
    of another one. Where a secret may be sent is said apart: `recorder.toolport.secrets`.
    """

    def may_register(self, sub: str) -> bool:
        """Whether *sub*, who owns the campaign, may register tool servers in it."""
        admins = [name.strip() for name in self.server_admins.split(",") if name.strip()]
        return not admins or sub in admins

    def switches(self) -> dict[str, str]:
        """The switches that tool ports read from the environment, which know ``1`` alone, whatever word was used there."""
        words = {"TAKEBACK_ALLOW_COMMANDS": self.allow_commands, "TAKEBACK_HTTP_ALLOW_PRIVATE": self.http_allow_private}
        return {name: str(int(is_on)) for name, is_on in words.items()}
