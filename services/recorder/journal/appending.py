"""Calling append_v1, or append_step_v1 for a step alone, and finding again what they wrote."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from recorder.journal.encoding import Encoded, arguments_of, step_arguments
from recorder.journal.unit import Appended, AppendedRecord, Refused, Unit

_APPEND = "select * from append_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_APPEND_STEP = (
    "select * from append_step_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,"
    " $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33)"
)


async def call_append(
    connection: asyncpg.Connection, units: Sequence[tuple[Unit, Encoded]], seconds: float | None = None
) -> list[Appended | Refused]:
    """One append: an answer for each of *units* (with what `encode` made of them), in order.

    A call's step that is alone goes to append_step_v1. Raises asyncpg's errors, TimeoutError after *seconds*. Outside a
    transaction, the call is one commit.
    """
    step = step_arguments(*units[0]) if len(units) == 1 else None
    if step is not None:
        rows = await connection.fetch(_APPEND_STEP, *step, timeout=seconds)
    else:
        rows = await connection.fetch(_APPEND, *arguments_of(units), timeout=seconds)
    answers: list[Appended | Refused | None] = [None] * len(units)
    for row in rows:
        index = row[0]
        if row[1] is not None:
            answers[index] = Refused(row[1], row[2], row[5])
            continue
        answer = answers[index]
        if not isinstance(answer, Appended):
            answer = answers[index] = Appended([], row[3])
        answer.records.append(AppendedRecord(row[4], row[5], row[6], row[7], row[8], row[9], row[10]))
    if None in answers:
        raise AssertionError("append_v1 left a unit without an answer")
    return [answer for answer in answers if answer is not None]


async def written_before(connection: asyncpg.Connection, units: Sequence[Unit]) -> list[Appended | None]:
    """What the journal holds of *units* by their record ids: the answer that was lost, or None where nothing was written.

    The fence is the key's present one: others may have raised it since.
    """
    ids = [record.id for unit in units for record in unit.records]
    rows = await connection.fetch(
        "select id, stream, seq, at, hash, previous_hash, after, label from records where id = any($1)", ids
    )
    found = {(row[0], row[1]): AppendedRecord(*row[1:]) for row in rows}
    keys = [unit.fence.key for unit in units if unit.fence is not None]
    rows = await connection.fetch("select serial_key, value from fences where serial_key = any($1)", keys)
    fences: dict[str, int] = {row[0]: row[1] for row in rows}
    answers: list[Appended | None] = []
    for unit in units:
        records = [found.get((record.id, record.stream)) for record in unit.records]
        written = [record for record in records if record is not None]
        complete = len(written) == len(records)
        answers.append(Appended(written, fences.get(unit.fence.key) if unit.fence else None) if complete else None)
    return answers
