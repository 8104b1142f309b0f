"""What a record is called: a URI template of a tool server, filled in from a call's arguments (contract.md)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mcp.shared.uri_template import UriTemplate


def expand(template: str, values: Mapping[str, Any]) -> str | None:
    """The resource that *template* names for these arguments; None where one of its variables has no plain value."""
    read = parsed(template)
    variables: dict[str, str] = {}
    for name in read.variable_names:
        text = plain(values.get(name))
        if not text:
            return None
        variables[name] = text
    return read.expand(variables)


@lru_cache(maxsize=4096)
def parsed(template: str) -> UriTemplate:
    """The template, read once: reading takes longer than all that is done with it. Raises `InvalidUriTemplate`."""
    return UriTemplate.parse(template)


def plain(value: Any) -> str | None:
    """*value* as it stands in a name; None for what has no one way to be written there."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None
