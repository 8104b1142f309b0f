"""What became of an attempt to deliver: a value that carries the decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Verdict:
    """*outcome* decides what the ledger does; *reason* is for the person who looks at it.

    `accepted`: the receiver has taken it over. `retry`: again later, not before *after_seconds*. `dead`: never by itself.
    `gone`: the target wants nothing any more. `not_configured`: there is no way to send it here.
    """

    outcome: Literal["accepted", "retry", "dead", "gone", "not_configured"]
    reason: str = ""
    after_seconds: float = 0.0


ACCEPTED = Verdict("accepted")
