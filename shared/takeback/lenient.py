"""Reading an object from outside part by part: what is valid is kept, what is not is named (J11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from takeback.messages.entry import Unresolved

_T = TypeVar("_T")


class LenientReader:
    """Reads an object member by member and collects what it could not read, under the member's path."""

    def __init__(self, raw: Any, path: str = "", unresolved: list[Unresolved] | None = None) -> None:
        self.unresolved: list[Unresolved] = [] if unresolved is None else unresolved
        self.failed: set[str] = set()
        self.is_object = type(raw) is dict or isinstance(raw, Mapping)
        self.broken = not self.is_object
        self.raw: Mapping[str, Any] = raw if self.is_object else {}
        self._path = path
        if self.broken:
            self.unresolved.append(
                Unresolved(field=path or "declaration", reason=f"an object is needed, not {kind_of(raw)}")
            )

    def __call__(self, name: str, adapter: TypeAdapter[_T], default: Any) -> Any:
        value = self.raw.get(name)
        return default if value is None else self._validated(name, value, adapter, default)

    def has(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def each(self, name: str, adapter: TypeAdapter[_T]) -> list[_T]:
        """The valid items of a list."""
        if self.raw.get(name) is None:
            return []
        missing = object()
        read = (self._validated(f"{name}[{n}]", item, adapter, missing) for n, item in self._items(name))
        return [item for item in read if item is not missing]

    def objects(self, name: str) -> list[LenientReader]:
        return [LenientReader(item, self._name(f"{name}[{n}]"), self.unresolved) for n, item in self._items(name)]

    def inside(self, name: str) -> LenientReader:
        value = self.raw.get(name)
        return LenientReader({} if value is None else value, self._name(name), self.unresolved)

    def missing(self, name: str, reason: str) -> None:
        self.failed.add(name)
        self.unresolved.append(Unresolved(field=self._name(name), reason=reason))

    def _items(self, name: str) -> Iterable[tuple[int, Any]]:
        value = self.raw.get(name)
        if value is not None and not isinstance(value, list):
            self.missing(name, f"a list is needed, not {kind_of(value)}")
            return ()
        return enumerate(value or ())

    def _validated(self, name: str, value: Any, adapter: TypeAdapter[_T], default: Any) -> Any:
        try:
            return adapter.validator.validate_python(value)  # the adapter itself costs four times as much
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            self.failed.add(name)
            field = self._name(f"{name}.{where}" if where else name)
            self.unresolved.append(Unresolved(field=field, reason=first["msg"]))
            return default

    def _name(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name


def kind_of(value: Any) -> str:
    """How a message names the type of *value*."""
    return "nothing" if value is None else type(value).__name__
