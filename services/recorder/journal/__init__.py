"""The journal: hash-chained streams of records, written one way, published, exported and verified (J1, J2, J3, J13)."""

from recorder.journal.chain import Record
from recorder.journal.journal import Journal, Transaction
from recorder.journal.unavailable import JournalUnavailable
from recorder.journal.unit import (
    Appended,
    AppendedRecord,
    EntryChange,
    Fence,
    Holds,
    Idempotency,
    Interaction,
    NewRecord,
    Refused,
    ResourceUse,
    Unit,
    Unwritable,
)

__all__ = [
    "Appended",
    "AppendedRecord",
    "EntryChange",
    "Fence",
    "Holds",
    "Idempotency",
    "Interaction",
    "Journal",
    "JournalUnavailable",
    "NewRecord",
    "Record",
    "Refused",
    "ResourceUse",
    "Transaction",
    "Unit",
    "Unwritable",
]
