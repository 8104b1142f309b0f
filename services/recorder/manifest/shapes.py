"""What stands inside the values that expressions name, as far as the manifest alone tells it: keys, states, fields. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from recorder.manifest import uris
from recorder.manifest.model import Change, Manifest, Record

Shape = Mapping[str, "Shape | None"]
"""What may be named inside a value, and what inside that; None where only the call will tell."""
Known = Mapping[str, Shape | None]
"""The names that an expression may use."""

_TEXT: Final = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_ASKED: Final = re.compile(r"\bhas\([^()]*\)")
_PATH: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)+)(?![\w(])(?!\s*\()")


def unknown(*names: str) -> Known:
    """*names*, of which nothing more is known."""
    return dict.fromkeys(names)


def of_keys(record: Record) -> Shape:
    """The keys of *record*."""
    return unknown(*uris.keys_of(record.uri))


def of_change(manifest: Manifest, change: Change) -> Known:
    """What a way back, or `leaves`, calls by short names: the record's own keys and states."""
    record = manifest.records.get(change.record)
    if record is None:
        return unknown("keys", "before", "after", "now", "wanted", "item")
    state = _state(record)
    return {"keys": of_keys(record), "wanted": _fields(record), "item": None} | dict.fromkeys(
        ("before", "after", "now"), state
    )


def of_records(manifest: Manifest, changes: Iterable[Change]) -> Shape:
    """`records`: each changed record by its name, a list of them where there is one for each."""

    def inside(change: Change) -> Shape | None:
        if change.each is not None:
            return None
        return {name: shape for name, shape in of_change(manifest, change).items() if name != "wanted"}

    return {change.name: inside(change) for change in changes}


def misnamed(source: str, known: Known, bound: Iterable[str]) -> Iterator[str]:
    """What *source* names inside a value that surely has no such thing; *bound* are the names of its own macros.

    Whether something is there may be asked of anything (``has(…)``).
    """
    own = set(bound)
    for root, rest in _PATH.findall(_ASKED.sub("true", _TEXT.sub("''", source))):
        inside, where = (None if root in own else known.get(root)), root
        for name in rest.split(".")[1:]:
            if inside is None:
                break
            if name not in inside:
                yield f"there is no {name} in {where}; there are {', '.join(sorted(inside)) or 'none'}"
                break
            inside, where = inside[name], f"{where}.{name}"


def _state(record: Record) -> Shape:
    return {**unknown("exists", "version", "restorable", "why"), "fields": _fields(record)}


def _fields(record: Record) -> Shape | None:
    """The names of the fields, where they are written down and not computed."""
    return unknown(*record.fields) if isinstance(record.fields, dict) else None
