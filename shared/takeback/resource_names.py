"""What a record is called: a URI template of a tool server, filled in from a call's arguments (contract.md)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mcp.shared.uri_template import UriTemplate


class Nameless(ValueError):
    """A template names nothing: its *variable* has no plain value."""

    def __init__(self, variable: str) -> None:
        super().__init__(f"{variable} has no plain value")
        self.variable = variable


def expand(template: str, values: Mapping[str, Any]) -> str:
    """The resource that *template* names for these values; raises `Nameless`."""
    read = parsed(template)
    variables: dict[str, str] = {}
    for name in read.variable_names:
        text = _plain(values.get(name))
        if not text:
            raise Nameless(name)
        variables[name] = text
    return read.expand(variables)


@lru_cache(maxsize=4096)
def parsed(template: str) -> UriTemplate:
    """The template, read once: reading takes longer than all that is done with it. Raises `InvalidUriTemplate`."""
    return UriTemplate.parse(template)


def _plain(value: Any) -> str | None:
    """*value* as it stands in a name; None for what has no one way to be written there."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None
