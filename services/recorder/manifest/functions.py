"""The functions that a manifest's expressions may call beside CEL's own: pure, and an error rather than a guess."""

from __future__ import annotations

import ast
import base64 as base64_codec
import hashlib
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import quote as quote_url
from urllib.parse import unquote as unquote_url

import orjson

from takeback import json as canonical_json

Json = dict[str, Any]
_MOST_TEXT: Final = 4_000_000
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$ .-]*\Z")


def fingerprint(value: Any) -> str:
    """A version for records whose server gives none: SHA-256 of *value* as canonical JSON."""
    return f"sha256:{hashlib.sha256(canonical_json.dumps(value)).hexdigest()[:40]}"


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise ValueError(f"json(): {error}") from error


def _literal(text: str) -> Any:
    """A value that a server printed with Python's repr: lists, dicts, text, numbers, True, False, None."""
    if len(text) > _MOST_TEXT:
        raise ValueError("literal(): the text is too long")
    try:
        value = ast.literal_eval(text)
        return orjson.loads(orjson.dumps(value))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"literal(): {str(error)[:200]}") from error


def _capture(text: str, pattern: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise ValueError(f"capture(): nothing in the text is {pattern}")
    value = found.group(1) if found.groups() else found.group(0)
    if value is None:
        raise ValueError(f"capture(): the group of {pattern} took no part")
    return value


def _captures(text: str, pattern: str) -> list[str]:
    return [found.group(1) if found.groups() else found.group(0) for found in re.finditer(pattern, text, re.MULTILINE)]


def _pick(value: Json, names: list[str]) -> Json:
    missing = [name for name in names if name not in value]
    if missing:
        raise ValueError(f"pick(): there is no {', '.join(missing)}")
    return {name: value[name] for name in names}


def _without(value: Json, names: list[str]) -> Json:
    return {name: kept for name, kept in value.items() if name not in names}


def _merge(first: Json, second: Json) -> Json:
    return {**first, **second}


def _one(values: list[Any]) -> Any:
    if len(values) != 1:
        raise ValueError(f"one(): there are {len(values)}")
    return values[0]


def _canonical(path: str) -> str:
    """One spelling for a path: no `.`, `..`, doubled or trailing slashes. Links are the server's: they are not followed."""
    if "\x00" in path:
        raise ValueError("canonical(): the path holds NUL")
    return re.sub(r"\A//", "/", posixpath.normpath(path))


def _sql(value: Any) -> str:
    """*value* as an SQL literal."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "1" if value else "0"
        case int() | float():
            return repr(value)
        case str() if "\x00" not in value:
            return "'" + value.replace("'", "''") + "'"
    raise ValueError("sql(): only text without NUL, numbers, true, false and null are literals")


def _ident(name: str) -> str:
    if not _IDENTIFIER.match(name):
        raise ValueError(f"ident(): {name!r} is no plain identifier")
    return '"' + name + '"'


def _plus(first: Any, second: Any) -> Any:
    return _calculated(first, second, lambda a, b: a + b)


def _minus(first: Any, second: Any) -> Any:
    return _calculated(first, second, lambda a, b: a - b)


def _calculated(first: Any, second: Any, how: Callable[[Decimal, Decimal], Decimal]) -> Any:
    """Exact, whatever kinds of number come together; text where the first is text (money)."""
    try:
        value = how(_decimal(first), _decimal(second))
    except InvalidOperation as error:
        raise ValueError(f"{first!r} and {second!r} are not both numbers") from error
    if isinstance(first, str):
        return str(value)
    return int(value) if value == value.to_integral_value() and isinstance(first, int) else float(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is no number")
    return Decimal(str(value))


def _base64(value: str | bytes) -> str:
    return base64_codec.b64encode(value.encode() if isinstance(value, str) else value).decode()


def _unbase64(value: str) -> str:
    try:
        return base64_codec.b64decode(value, validate=True).decode()
    except ValueError as error:
        raise ValueError("unbase64(): it is not the base64 of UTF-8 text") from error


def _fail(reason: str) -> Any:
    raise ValueError(reason)


def _get(value: Json, name: str, otherwise: Any) -> Any:
    return value.get(name, otherwise)


def _names(value: Mapping[str, Any]) -> list[str]:
    return sorted(value)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "json": _json,
    "tojson": lambda value: canonical_json.dumps(value).decode(),
    "literal": _literal,
    "capture": _capture,
    "captures": _captures,
    "pick": _pick,
    "without": _without,
    "merge": _merge,
    "fail": _fail,
    "get": _get,
    "names": _names,
    "one": _one,
    "sorted": lambda values: sorted(values, key=canonical_json.dumps),
    "split": lambda text, separator: text.split(separator),
    "join": lambda values, separator: separator.join(values),
    "replace": lambda text, old, new: text.replace(old, new),
    "trim": lambda text: text.strip(),
    "lower": lambda text: text.lower(),
    "sha256": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "fingerprint": fingerprint,
    "base64": _base64,
    "unbase64": _unbase64,
    "canonical": _canonical,
    "parent": lambda path: posixpath.dirname(_canonical(path)),
    "basename": lambda path: posixpath.basename(_canonical(path)),
    "plus": _plus,
    "minus": _minus,
    "sql": _sql,
    "ident": _ident,
    "shell": shlex.quote,
    "url": lambda text: quote_url(text, safe=""),
    "unurl": lambda text: unquote_url(text, errors="strict"),
}
"""By the name under which an expression calls them."""
