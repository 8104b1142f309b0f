"""A record that is one row of a table: reading it and putting it back, for any columns."""

# ruff: noqa: S608 (the only parts of a statement that are not parameters are quoted identifiers)

from __future__ import annotations

import json as stdlib_json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from takeback import json
from takeback.toolserver.record import Fields, Record, Tx


def table_record(
    table: str, resource: str, key: str | Sequence[str] | None, version: str | None, ignore: Sequence[str]
) -> Record:
    """A `Record` that is one row of *table*; see `ToolServer.table`."""
    record = Record(resource, version=version)
    columns = [key] if isinstance(key, str) else list(key or record.variables)
    if len(columns) != len(record.variables):
        raise TypeError(f"{resource} has the variables {record.variables}, the key has the columns {columns}")
    name = _quoted(table)
    # The ids reach the row's own types through JSON, so that any key type works and its index is used.
    wanted = f"(jsonb_populate_record(null::{name}, $1::text::jsonb))"
    where = " and ".join(f"r.{_quoted(column)} = {wanted}.{_quoted(column)}" for column in columns)
    kept = {version, *ignore}

    def ids_json(values: Mapping[str, Any]) -> str:
        return json.dumps(dict(zip(columns, (values[v] for v in record.variables), strict=True))).decode()

    @record.read
    async def _(tx: Tx, lock: bool, **ids: Any) -> Fields | None:
        for_update = " for update" if lock else ""
        row = await tx.fetchval(f"select to_jsonb(r)::text from {name} r where {where}{for_update}", ids_json(ids))
        return None if row is None else {f: value for f, value in _exactly(row).items() if f not in ignore}

    @record.restore
    async def _(tx: Tx, before: Fields | None, **ids: Any) -> None:
        if before is None:
            await tx.execute(f"delete from {name} r where {where}", ids_json(ids))
            return
        fields = [field for field in before if field not in kept]
        sets = [f"{_quoted(field)} = new.{_quoted(field)}" for field in fields if field not in columns]
        if version is not None:
            sets.append(f"{_quoted(version)} = r.{_quoted(version)} + 1")
        source = f"jsonb_populate_record(null::{name}, $2::text::jsonb) new"
        row = json.dumps({field: before[field] for field in fields}).decode()
        if (
            sets
            and await tx.execute(
                f"update {name} r set {', '.join(sets)} from {source} where {where}", ids_json(ids), row
            )
            != "UPDATE 0"
        ):
            return
        names = ", ".join(_quoted(field) for field in fields)
        await tx.execute(
            f"insert into {name} ({names}) overriding system value select {names} from {source.replace('$2', '$1')}",
            row,
        )

    return record


def _exactly(row: str) -> Fields:
    """The row in its JSON.

    A number that a double or 64 bits cannot hold is text, so that its column comes back as it was. (Inside a jsonb
    column it would come back as text.)
    """
    fields: Fields = stdlib_json.loads(row, parse_float=_real, parse_int=_integer)
    return fields


def _real(text: str) -> float | str:
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else text


def _integer(text: str) -> int | str:
    value = int(text)
    return value if -(2**63) <= value < 2**63 else text


def _quoted(identifier: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in identifier.split("."))
