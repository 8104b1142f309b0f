"""Identifiers: prefixed, time-ordered, safe in a subject, a key and a path (design.md, Names on the wire)."""

from __future__ import annotations

import re
import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_DIGITS = (_ALPHABET * 8).encode()  # five bits of each random byte make a digit
_VALID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def new_id(prefix: str) -> str:
    """A fresh id such as ``ent_01j…``: 48 bits of milliseconds, then 80 random bits, so that ids sort by time."""
    ms = int(time.time() * 1000)
    when = f"{_PAIRS[ms >> 40]}{_PAIRS[ms >> 30 & 1023]}{_PAIRS[ms >> 20 & 1023]}{_PAIRS[ms >> 10 & 1023]}{_PAIRS[ms & 1023]}"
    return f"{prefix}_{when}{secrets.token_bytes(16).translate(_DIGITS).decode()}"


def is_valid_id(value: object) -> bool:
    """Whether *value* may appear in a subject, a key or a path: ``^[A-Za-z0-9_-]{1,64}$``."""
    return isinstance(value, str) and _VALID.match(value) is not None
