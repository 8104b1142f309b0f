"""Secrets in a tool server's configuration: named there, read from the environment when they are used.

Whoever registers a tool server says where it is. So the operator of the recorders may bind a secret to where it belongs:
`TAKEBACK_ORIGINS_CRM` says to which origins `TAKEBACK_SECRET_CRM` may be sent. One that is not bound goes to whatever server
names it (contract.md), and `unbound` tells of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from recorder.toolport.http_target import origin_of
from recorder.toolport.port import ToolRefused

PREFIX = "TAKEBACK_SECRET_"
ORIGINS = "TAKEBACK_ORIGINS_"
_MARK = "env:"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


class BadSecret(ToolRefused):
    """A configuration that names a secret which may not be read, not be sent there, or is not there. Nothing was sent."""


def check(values: Mapping[str, str], environ: Mapping[str, str], url: str | None) -> None:
    """Refuse, with `BadSecret`, a value that names what is no secret, or one that may not go to *url* (None: a command)."""
    for where, value in values.items():
        for part in value.split(" "):
            if (name := _name_in(where, part)) is not None:
                _check_bound(name, environ, url)


def check_headers(headers: Mapping[str, str], environ: Mapping[str, str], url: str) -> None:
    """Refuse, with `ToolRefused`, what no request can carry as a header (RFC 9110), and secrets as `check` does."""
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ToolRefused(f"The header {name[:100]!r} cannot be sent: a name is a token, a value printable ASCII.")
    check(headers, environ, url)


def unbound(environ: Mapping[str, str]) -> list[str]:
    """The secrets that an owner can have sent to any server: the operator is told of them at the start."""
    names = [name for name, value in environ.items() if name.startswith(PREFIX) and value]
    return sorted(name for name in names if not environ.get(_binding(name), "").split())


def resolve(values: Mapping[str, str], environ: Mapping[str, str], url: str | None) -> dict[str, str]:
    """The values with each ``env:NAME`` replaced, as they go to *url* (None: to a command). ``Bearer env:NAME`` too.

    Raises `BadSecret`, which never holds a secret itself.
    """
    return {
        where: " ".join(_resolved(where, part, environ, url) for part in value.split(" "))
        for where, value in values.items()
    }


def _resolved(where: str, part: str, environ: Mapping[str, str], url: str | None) -> str:
    name = _name_in(where, part)
    if name is None:
        return part
    if name not in environ:
        raise BadSecret(f"{where} names {part}, which the recorder's environment does not have. Nothing was sent.")
    _check_bound(name, environ, url)
    return environ[name]


def _name_in(where: str, part: str) -> str | None:
    if not part.startswith(_MARK):
        return None
    name = part.removeprefix(_MARK)
    if not name.startswith(PREFIX):
        raise BadSecret(f"{where} names {part}; only env:{PREFIX}… may be read. Nothing was sent.")
    return name


def _check_bound(name: str, environ: Mapping[str, str], url: str | None) -> None:
    setting = _binding(name)
    bound = environ.get(setting, "").split()
    if not bound:
        return
    if url is None:
        raise BadSecret(f"{name} is bound to origins by {setting}, so no command is given it. Nothing was sent.")
    origin = origin_of(url)
    if origin not in [origin_of(one) for one in bound]:
        raise BadSecret(
            f"{name} may not be sent to {origin}. Nothing was sent. Who runs the recorders binds it to where it belongs:"
            f" {setting}={origin}"
        )


def _binding(name: str) -> str:
    return ORIGINS + name.removeprefix(PREFIX)
