"""A unit as the database takes it: pure. Whatever PostgreSQL could not keep is refused here, before it meets other units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from recorder.journal.unit import (
    MAX_RECORD_BYTES,
    EntryChange,
    Holds,
    Idempotency,
    ResourceUse,
    Unit,
    Unwritable,
)

MAX_KEY_BYTES = 2000
"""What the database can index: a longer resource, key or path is refused before it reaches a batch."""

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class Encoded(NamedTuple):
    """A unit without its bodies: *json*, one element of append_v1's array, and the numbers of the *locks* that it needs."""

    json: bytes
    locks: Sequence[int]


def arguments_of(group: Sequence[tuple[Unit, Encoded]]) -> tuple[Any, ...]:
    """What append_v1 takes for *group*, in its order."""
    records = [record for unit, _ in group for record in unit.records]
    changes = [change for unit, _ in group for change in unit.entries]
    opens = [
        {"stream": record.stream, "campaign": record.campaign, "kind": record.kind}
        for record in records
        if record.type.endswith(".opened")
    ]
    return (
        (b"[" + b",".join([encoded.json for _, encoded in group]) + b"]").decode(),
        [record.body for record in records],
        sorted({number for _, encoded in group for number in encoded.locks}),
        list({record.stream for record in records}),
        list({unit.fence.key for unit, _ in group if unit.fence is not None}),
        list({change.id for change in changes}),
        list({change.serial_key for change in changes if change.serial_key and change.write}),
        list({change.reverts for change in changes if change.reverts is not None}),
        list({unit.steady.campaign for unit, _ in group if unit.steady is not None}),
        orjson.dumps(opens).decode() if opens else None,
    )


def step_arguments(unit: Unit, encoded: Encoded) -> tuple[Any, ...] | None:
    """What append_step_v1 takes for *unit*; None where it is more than a call's plain step."""
    if len(unit.records) != 1 or len(unit.entries) != 1:
        return None
    (record,), (change,) = unit.records, unit.entries
    holds, fence, steady = unit.holds, unit.fence, unit.steady
    if (
        unit.once is not None
        or unit.idempotency is not None
        or unit.interaction is not None
        or change.reverts is not None
        or not record.type.startswith("entry.")
        or record.stream != change.run
        or any((use.entry, use.campaign) != (change.id, change.campaign) for use in unit.resources)
        or (holds is not None and (holds.owner is not None or holds.taken or holds.released))
    ):
        return None
    uses = list({(use.resource, use.role): use for use in unit.resources}.values())
    return (
        sorted(encoded.locks),
        record.stream,
        change.campaign,
        record.id,
        record.type,
        record.body,
        record.published,
        change.id,
        None if change.expect is None else list(change.expect),
        change.status,
        change.interaction,
        change.server,
        change.operation,
        change.tier,
        change.kind,
        change.principal,
        change.agent,
        change.serial_key,
        change.write,
        change.arguments_hash,
        change.lease_seconds,
        change.concluded,
        [use.resource for use in uses] or None,
        [use.role for use in uses],
        [use.version for use in uses],
        unit.stream_open,
        None if fence is None else fence.key,
        None if fence is None else fence.expect,
        None if steady is None else steady.campaign,
        None if steady is None else steady.version,
        None if holds is None else holds.campaign,
        None if holds is None else list(holds.checked),
        steady is not None and steady.fetched,
    )


def encode(unit: Unit) -> Encoded:
    """*unit* as append_v1 takes it.

    Raises `Unwritable`, so that no unit can spoil the batch that it would travel in; ValueError for a unit that is wrong
    in itself (no record, an entry without a record).
    """
    largest = max((len(record.body) for record in unit.records), default=0)
    if largest > MAX_RECORD_BYTES:
        raise Unwritable(
            f"A record of {largest:,} bytes is more than the {MAX_RECORD_BYTES:,} that the journal takes. Nothing was written."
        )
    try:
        encoded = orjson.dumps(_wire(unit))
    except (TypeError, UnicodeEncodeError) as error:  # orjson's own error is a TypeError
        raise Unwritable(f"The journal cannot keep this: {error}. Nothing was written.") from error
    if b"\\u0000" in encoded and _NUL.search(encoded):
        raise Unwritable("The journal cannot keep the NUL character. Nothing was written.")
    return Encoded(encoded, [_lock_number(name) for name in _locks(unit)])


def _wire(unit: Unit) -> dict[str, Any]:
    if not unit.records:
        raise ValueError("a unit needs a record")
    last: dict[str, int] = {}
    wire: dict[str, Any] = {
        "records": _records(unit, last),
        "bodies": len(unit.records),
        "streams": list({record.stream: None for record in unit.records}),
        "stream_open": unit.stream_open,
        "entries": [_entry(change, last) for change in unit.entries],
    }
    if unit.once is not None:
        wire["once"] = unit.once
    if unit.resources:
        once_each = {(use.entry, use.resource, use.role): use for use in unit.resources}
        wire["resources"] = [_resource(use) for use in once_each.values()]
    if unit.fence is not None:
        wire |= {"fence_key": unit.fence.key, "fence_expect": unit.fence.expect}
    if unit.idempotency is not None:
        wire |= _idempotency(unit.idempotency)
    if unit.interaction is not None:
        owner = unit.interaction
        wire |= {
            "interaction": owner.id,
            "interaction_campaign": owner.campaign,
            "interaction_run": owner.run,
        }
    if unit.holds is not None:
        wire |= _holds(unit.holds)
    if unit.steady is not None:
        steady = unit.steady
        wire |= {"steady_campaign": steady.campaign, "steady_version": steady.version, "steady_fetched": steady.fetched}
    return wire


def _records(unit: Unit, last: dict[str, int]) -> list[dict[str, Any]]:
    """The records; *last* is filled with the place of the last one about each entry."""
    new = {change.id for change in unit.entries if change.expect is None}
    records = []
    for index, record in enumerate(unit.records):
        first = record.entry in new and record.entry not in last
        if record.entry is not None:
            last[record.entry] = index
        records.append(
            {
                "stream": record.stream,
                "id": record.id,
                "type": record.type,
                "body": index,
                "published": record.published,
                "entry": record.entry,
                "first": first,
            }
        )
    return records


def _locks(unit: Unit) -> list[str]:
    """What must not change while the rules of *unit* are checked; streams are locked by themselves."""
    keys = {change.serial_key for change in unit.entries if change.serial_key and change.write}
    if unit.fence is not None:
        keys.add(unit.fence.key)
    locks = [f"key {key}" for key in keys]
    if unit.idempotency is not None:
        claim = unit.idempotency
        locks.append(f"idempotency {claim.sub}\n{claim.path}\n{claim.key}")
    if unit.interaction is not None:
        locks.append(f"interaction {unit.interaction.campaign} {unit.interaction.id}")
    if unit.holds is not None:
        locks += [f"hold {unit.holds.campaign} {resource}" for resource in {*unit.holds.checked, *unit.holds.taken}]
    return locks


@lru_cache(maxsize=4096)
def _lock_number(name: str) -> int:
    """The same in every recorder. Two names with one number wait for each other needlessly, and nothing worse."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def _idempotency(claim: Idempotency) -> dict[str, Any]:
    _indexable(claim.sub, claim.path, claim.key)
    return {
        "sub": claim.sub,
        "path": claim.path,
        "key": claim.key,
        "body_hash": claim.body_hash,
        "answer": claim.entry,
    }


def _holds(holds: Holds) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "holds_campaign": holds.campaign,
        "holds_owner": holds.owner,
        "holds_released": holds.released,
    }
    for resource in (*holds.checked, *holds.taken):
        _indexable(holds.campaign, resource)
    if holds.checked:
        wire["holds_checked"] = list(holds.checked)
    if holds.taken:
        wire["holds_taken"] = list(holds.taken)
    return wire


def _entry(change: EntryChange, last: Mapping[str, int]) -> dict[str, Any]:
    if change.id not in last:
        raise ValueError(f"entry {change.id} changes without a record about it")
    wire = change._asdict()
    wire["record"] = last[change.id]
    return wire


def _resource(use: ResourceUse) -> dict[str, Any]:
    _indexable(use.entry, use.resource)
    return use._asdict()


def _indexable(*texts: str) -> None:
    characters = sum(map(len, texts))
    if 4 * characters > MAX_KEY_BYTES and sum(len(text.encode()) for text in texts) > MAX_KEY_BYTES:
        raise Unwritable(f"A resource or key is longer than {MAX_KEY_BYTES} bytes. Nothing was written.")
