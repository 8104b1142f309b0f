"""What the planner is told by its environment."""

from __future__ import annotations

from takeback.settings import ServiceSettings


class Settings(ServiceSettings):
    """The planner's settings (contract.md, Settings): those that all services share."""
