"""Secrets in a tool server's configuration: named there, read from the environment when they are used."""

from __future__ import annotations

import re
from collections.abc import Mapping

from recorder.toolport.port import ToolRefused

PREFIX = "TAKEBACK_SECRET_"
_MARK = "env:"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


class BadSecret(ToolRefused):
    """A configuration that names a secret which may not be read or is not there. Nothing was sent."""


def check(values: Mapping[str, str]) -> None:
    """Refuse, with `BadSecret`, a value that names an environment variable outside ``TAKEBACK_SECRET_*``."""
    for where, value in values.items():
        for part in value.split(" "):
            _name_in(where, part)


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse, with `ToolRefused`, what no request can carry as a header (RFC 9110), and secrets as `check` does."""
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ToolRefused(f"The header {name[:100]!r} cannot be sent: a name is a token, a value printable ASCII.")
    check(headers)


def resolve(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The values with each ``env:NAME`` replaced. ``Bearer env:NAME`` is replaced too.

    Raises `BadSecret`, which never holds a secret itself.
    """
    return {
        where: " ".join(_resolved(where, part, environ) for part in value.split(" ")) for where, value in values.items()
    }


def _resolved(where: str, part: str, environ: Mapping[str, str]) -> str:
    name = _name_in(where, part)
    if name is None:
        return part
    if name not in environ:
        raise BadSecret(f"{where} names {part}, which the recorder's environment does not have. Nothing was sent.")
    return environ[name]


def _name_in(where: str, part: str) -> str | None:
    if not part.startswith(_MARK):
        return None
    name = part.removeprefix(_MARK)
    if not name.startswith(PREFIX):
        raise BadSecret(f"{where} names {part}; only env:{PREFIX}… may be read. Nothing was sent.")
    return name
