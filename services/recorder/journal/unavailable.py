"""The journal's fail-closed answer (J3)."""

from __future__ import annotations


class JournalUnavailable(Exception):
    """The journal could not be written; nothing may be forwarded (J3). Safe to try again.

    *written*: False, nothing was written and nothing will be; None, it is unknown (the database went away in the moment of
    the commit and has not come back): reread by record or entry id before acting on it.
    """

    def __init__(self, message: str, *, written: bool | None) -> None:
        super().__init__(message)
        self.written = written
