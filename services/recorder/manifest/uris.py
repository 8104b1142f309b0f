"""Names of records: URI templates that lead back to their keys without loss, unlike RFC 6570's reserved expansion. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote

_VARIABLE: Final = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")


def keys_of(template: str) -> list[str]:
    """The keys that *template* names, in their order."""
    return [name for _, name in _VARIABLE.findall(template)]


def expand(template: str, keys: Mapping[str, Any]) -> str:
    """The record's URI. ``{key}`` becomes one segment, ``{+key}`` keeps its slashes. Raises `ValueError` for an empty key."""

    def value(found: re.Match[str]) -> str:
        text = keys[found[2]]
        if not isinstance(text, str) or not text:
            raise ValueError(f"the key {found[2]} of {template} has no value")
        return quote(text, safe="/" if found[1] else "")

    return _VARIABLE.sub(value, template)


def match(template: str, uri: str) -> dict[str, str] | None:
    """The keys in *uri*, or None where it is no name of this kind."""
    found = _pattern(template).fullmatch(uri)
    return None if found is None else {name: unquote(text) for name, text in found.groupdict().items()}


def problem_in(template: str) -> str | None:
    """Why *template* cannot name records; None where it can."""
    rest = _VARIABLE.sub("", template)
    names = keys_of(template)
    if "{" in rest or "}" in rest:
        return "a brace that is no {key} or {+key}"
    if len(set(names)) != len(names):
        return "a key stands in it twice"
    if not re.match(r"[a-z][a-z0-9+.-]*:", template):
        return "it begins with no scheme, as in notes://note/{id}"
    return None


@lru_cache(maxsize=1024)
def _pattern(template: str) -> re.Pattern[str]:
    parts, at = [], 0
    for found in _VARIABLE.finditer(template):
        parts.append(re.escape(template[at : found.start()]))
        parts.append(f"(?P<{found[2]}>{'.+' if found[1] else '[^/?#]+'})")
        at = found.end()
    parts.append(re.escape(template[at:]))
    return re.compile("".join(parts))
