"""The life of an entry: which step may follow which, and what record says so. Pure (design.md, Serialization, doubt).

::

    (new) ──ask──▶ awaiting_approval ──intend──▶ pending ──commit──▶ committed ──claim──▶ reverting ──revert──▶ reverted
      │                 ├─deny──▶ denied           ├─fail──▶ failed       ▲  ▲               │                     │
      │                 └─expire▶ expired          └─doubt─▶ in_doubt ────┘  └────restore────┴───────restore───────┘
      └──intend──▶ pending; a read goes to committed or failed at once; a call that policy denies is denied at once
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from takeback.messages.entry import EntryStatus

Step = Literal[
    "ask", "deny", "expire", "intend", "commit", "fail", "doubt", "doubt_verification", "claim", "revert", "restore"
]


class Told(NamedTuple):
    """The record type that tells of a step, and whether it is published."""

    record: str
    published: bool


class IllegalStep(ValueError):
    """The step does not exist from that status: a defect, or somebody else was there first."""


_NEXT: Final[dict[tuple[EntryStatus | None, Step], EntryStatus]] = {
    (None, "ask"): "awaiting_approval",
    (None, "deny"): "denied",
    (None, "intend"): "pending",
    (None, "commit"): "committed",  # a read: one record, before its answer (J2)
    (None, "fail"): "failed",
    ("awaiting_approval", "intend"): "pending",
    ("awaiting_approval", "commit"): "committed",
    ("awaiting_approval", "fail"): "failed",
    ("awaiting_approval", "deny"): "denied",
    ("awaiting_approval", "expire"): "expired",
    ("pending", "commit"): "committed",
    ("pending", "fail"): "failed",
    ("pending", "doubt"): "in_doubt",
    ("pending", "doubt_verification"): "unverified",
    ("in_doubt", "commit"): "committed",
    ("in_doubt", "fail"): "failed",
    ("in_doubt", "doubt_verification"): "unverified",
    ("unverified", "commit"): "committed",
    ("unverified", "fail"): "failed",
    ("committed", "claim"): "reverting",
    ("reverting", "revert"): "reverted",
    ("reverting", "restore"): "committed",
    ("reverted", "restore"): "committed",
}

_TOLD: Final[dict[Step, Told]] = {
    "ask": Told("approval.requested", True),  # the one record that says it: the entry waits, and who was asked
    "deny": Told("entry.denied", True),
    "expire": Told("entry.expired", False),
    "intend": Told("entry.intended", False),
    "commit": Told("entry.committed", True),
    "fail": Told("entry.failed", True),
    "doubt": Told("entry.in_doubt", True),
    "doubt_verification": Told("entry.in_doubt", True),
    "claim": Told("entry.reverting", False),
    "revert": Told("entry.reverted", True),
    "restore": Told("entry.restored", True),
}


def after(status: EntryStatus | None, step: Step) -> EntryStatus:
    """The status that *step* leads to from *status* (None: no entry yet); raises `IllegalStep`."""
    try:
        return _NEXT[status, step]
    except KeyError:
        raise IllegalStep(f"an entry that is {status or 'new'} cannot {step.replace('_', ' ')}") from None


def before(step: Step) -> list[EntryStatus]:
    """The statuses from which *step* may be taken: what an append expects."""
    return [status for status, taken in _NEXT if taken == step and status is not None]


def told(step: Step) -> Told:
    """How the journal tells of *step*."""
    return _TOLD[step]
