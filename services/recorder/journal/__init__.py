"""The journal: hash-chained streams of records, written one way, published, exported and verified (J1, J2, J3, J13)."""

from recorder.journal.chain import Record
from recorder.journal.journal import Journal, Transaction
from recorder.journal.outbox import Publisher, jetstream_publish
from recorder.journal.reading import Head, JournalReader, StoredEntry
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
    Steady,
    Unit,
    Unwritable,
)
from recorder.journal.vault import CampaignKeys, SealBroken, Vault

__all__ = [
    "Appended",
    "AppendedRecord",
    "CampaignKeys",
    "EntryChange",
    "Fence",
    "Head",
    "Holds",
    "Idempotency",
    "Interaction",
    "Journal",
    "JournalReader",
    "JournalUnavailable",
    "NewRecord",
    "Publisher",
    "Record",
    "Refused",
    "ResourceUse",
    "SealBroken",
    "Steady",
    "StoredEntry",
    "Transaction",
    "Unit",
    "Unwritable",
    "Vault",
    "jetstream_publish",
]
