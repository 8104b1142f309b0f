"""JSON as the journal can keep it: what PostgreSQL or a second reader would not take is refused at the door."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from takeback.errors import Problem

MAX_BODY_BYTES = 1_048_576
MAX_DEPTH = 64
_MAX_INTEGER = 2**63 - 1
_WIDE_INTEGER = re.compile(rb"[0-9]{19}")


def dumps(value: Any) -> bytes:
    """*value* as compact JSON bytes with sorted keys, the same for equal values."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_UTC_Z)


def compact(value: Any) -> bytes:
    """*value* as compact JSON bytes, members in the order that they have: for what nobody compares byte by byte."""
    return orjson.dumps(value, option=orjson.OPT_UTC_Z)


def loads(data: bytes | str) -> Any:
    """The value of JSON that this system wrote itself."""
    return orjson.loads(data)


def parse(data: bytes) -> Any:
    """The value of JSON from outside.

    Raises `Problem` 413 over 1 MiB and 400 for what is not JSON (RFC 8259), is nested more than 64 deep, holds NUL, a
    lone surrogate, NaN or Infinity, an integer beyond 64 bits, or the same key twice.
    """
    if len(data) > MAX_BODY_BYTES:
        raise Problem(413, "too-large", f"The body is larger than {MAX_BODY_BYTES} bytes. Nothing was changed.")
    try:
        _refuse_depth(data)
        value = orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise _malformed(f"The body is not JSON: {error}") from error
    # What orjson reads has no NaN, no bare NUL and no half surrogate: the rest shows in the text.
    if b"\\u" in data or _WIDE_INTEGER.search(data) or _openings(data) > MAX_DEPTH:
        _refuse_unkept(value)
    if data.count(b":") != _keys_in(value):  # one colon for each key: none stood twice
        _refuse_duplicate_keys(data)
    return value


def check(value: Any) -> int:
    """The same refusals for a value that was already parsed by somebody else's reader (a tool server's answer).

    Its size is no reason: how many bytes of JSON it is, is the answer.
    """
    try:
        data = orjson.dumps(value)
    except (orjson.JSONEncodeError, RecursionError) as error:
        _refuse_unkept(value)  # says what it is, where it can
        raise _malformed(f"The value cannot be kept as JSON: {error}") from error
    # What orjson takes has no half surrogates. NaN it writes as null, NUL as an escape, a wide integer with many digits.
    if b"null" in data or b"\\u0000" in data or _WIDE_INTEGER.search(data) or _openings(data) > MAX_DEPTH:
        _refuse_unkept(value)
    return len(data)


def _openings(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def _keys_in(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(_keys_in(inner) for inner in value.values() if isinstance(inner, dict | list))
    if isinstance(value, list):
        return sum(_keys_in(inner) for inner in value if isinstance(inner, dict | list))
    return 0


def _malformed(detail: str) -> Problem:
    return Problem(400, "malformed", f"{detail}. Nothing was changed.")


def _refuse_depth(data: bytes) -> None:
    depth = deepest = 0
    in_string = escaped = False
    for byte in data if _openings(data) > MAX_DEPTH else b"":
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x5B, 0x7B):
            depth += 1
            deepest = max(deepest, depth)
        elif byte in (0x5D, 0x7D):
            depth -= 1
    if deepest > MAX_DEPTH:
        raise _malformed(f"The body is nested more than {MAX_DEPTH} deep")


def _refuse_unkept(value: Any) -> None:
    pending = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise _malformed(f"The value is nested more than {MAX_DEPTH} deep")
        if isinstance(item, str):
            _refuse_text(item)
        elif isinstance(item, dict):
            for key, inner in item.items():
                if not isinstance(key, str):
                    raise _malformed("A key is not text")
                _refuse_text(key)
                pending.append((inner, depth + 1))
        elif isinstance(item, list):
            pending.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, float) and not math.isfinite(item):
            raise _malformed("A number is NaN or infinite")
        elif isinstance(item, int) and abs(item) > _MAX_INTEGER:
            raise _malformed("An integer does not fit 64 bits")


def _refuse_text(text: str) -> None:
    if "\x00" in text:
        raise _malformed("A text holds the NUL character")
    if not text.isascii() and any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise _malformed("A text holds half of a surrogate pair")


def _refuse_duplicate_keys(data: bytes) -> None:
    json.loads(data, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _malformed(f"The key {key!r} stands twice in one object")
            seen.add(key)
    return members
