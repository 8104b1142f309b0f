"""What is read before a call by whoever has to make its way back: pure values between the port, the snapshot and the call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from takeback.extension import Observation, UndoTemplate


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record before a call: as it was read, or why it could not be. *why*: it is there and cannot be given back."""

    resource: str
    seen: Observation | None = None
    failure: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was read before a call for its way back. *undo* is how it could be taken back from here (J4).

    *reads* are findings beside the records, as JSON; *kept* is the port's own, and comes back to it with the call.
    """

    records: list[ReadRecord]
    undo: UndoTemplate
    reads: dict[str, Any]
    kept: Any
    failure: str | None = None
