"""A kind of record that operations change: how it is named, read and put back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import to_jsonable_python

from takeback import json
from takeback.resource_names import Nameless, expand, parsed
from takeback.toolserver.binding import Bound

Tx: TypeAlias = "Connection[Any] | PoolConnectionProxy[Any]"
Fields: TypeAlias = dict[str, Any]
Ids: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[..., Awaitable[Any]]

ABSENT = "absent"
"""The version of a record that does not exist: what a deletion leaves, and what its undo expects to find."""

_VARIABLE = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class State:
    """A record at one moment; *fields* is None where it does not exist."""

    resource: str
    ids: Ids
    fields: Fields | None
    version: str

    @property
    def exists(self) -> bool:
        return self.fields is not None


class Record:
    """A kind of record. *resource* is a URI template whose variables are the names of arguments.

    *version* names the field of the record that holds its revision (a value that every write changes); it is then no
    part of the fields that are compared and put back. Without it the version is a fingerprint of the fields.
    """

    def __init__(self, resource: str, *, version: str | None = None) -> None:
        self.template = _VARIABLE.sub(lambda found: "{" + to_snake(found[1]) + "}", resource)
        self.wire_template = _VARIABLE.sub(lambda found: "{" + to_camel(to_snake(found[1])) + "}", resource)
        self.variables = parsed(self.template).variable_names
        self._version = version
        self._read: Bound | None = None
        self._restore: Bound | None = None

    def read(self, function: Function) -> Function:
        """Decorate the function that reads the record: ``(tx, *variables, lock) -> fields or None``.

        It reads ``for update`` where *lock* is true (always, where it does not ask for *lock*).
        """
        self._read = Bound(function, {"tx", "lock", *self.variables})
        return function

    def restore(self, function: Function) -> Function:
        """Decorate the function that puts it back: ``(tx, *variables, before, after)``; *before* None: remove it.

        Where the record comes back under other ids, the function returns them: ``{"deal_id": "D-2"}``.
        """
        self._restore = Bound(function, {"tx", *self.variables, "before", "after", "call"})
        return function

    @property
    def restorable(self) -> bool:
        return self._restore is not None

    def ids_in(self, *sources: Mapping[str, Any]) -> Ids | None:
        """The values of the template's variables, each from the first source that has it; None where one is missing."""
        ids: Ids = {}
        for name in self.variables:
            for source in sources:
                value = source.get(name, source.get(to_camel(name)))
                if value is not None:
                    ids[name] = value
                    break
            else:
                return None
        return ids

    def resource_of(self, ids: Ids) -> str:
        """The resource with these ids.

        Raises `ValueError` where an id is not a plain value.
        """
        try:
            return expand(self.template, to_jsonable_python(ids))
        except Nameless as error:
            wanted = f"a plain, non-empty value for each of {self.variables}"
            raise ValueError(f"{self.template} needs {wanted}, not {ids}") from error

    def match(self, resource: str) -> Ids | None:
        """The ids in *resource*, or None where it is another kind's."""
        found = parsed(self.template).match(resource)
        return dict(found) if found is not None else None

    async def state(self, tx: Tx, ids: Ids, *, lock: bool = True) -> State:
        """The record as it is now; with *lock* nobody changes it before the transaction ends."""
        if self._read is None:
            raise TypeError(f"nothing reads {self.template}: decorate a function with .read or .snapshot")
        raw = await self._read(tx=tx, lock=lock, **ids)
        fields = None if raw is None else to_jsonable_python(dict(raw))
        return State(self.resource_of(ids), ids, *self._versioned(fields))

    async def put(self, tx: Tx, now: State, target: Fields | None, after: Fields | None, call: Any) -> Ids:
        """Bring the record to *target*; the ids that it has now."""
        if self._restore is None:
            raise TypeError(f"nothing puts {self.template} back: decorate a function with .restore or .revert")
        moved = await self._restore(tx=tx, before=target, after=after, call=call, **now.ids)
        return now.ids | dict(moved or {})

    def _versioned(self, fields: Fields | None) -> tuple[Fields | None, str]:
        if fields is None:
            return None, ABSENT
        if self._version is not None:
            return {name: value for name, value in fields.items() if name != self._version}, str(fields[self._version])
        return fields, hashlib.sha256(json.dumps(fields)).hexdigest()[:32]
