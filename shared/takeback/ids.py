"""Identifiers: prefixed, time-ordered, safe in a subject, a key and a path (design.md, Names on the wire)."""

from __future__ import annotations

import re
import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)  # 13 pairs of digits, the highest first
_VALID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def new_id(prefix: str) -> str:
    """A fresh id such as ``ent_01j…``: 48 bits of milliseconds, then 80 random bits, so that ids sort by time."""
    number = (int(time.time() * 1000) << 80) | int.from_bytes(secrets.token_bytes(10))
    return f"{prefix}_{''.join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])}"


def is_valid_id(value: object) -> bool:
    """Whether *value* may appear in a subject, a key or a path: ``^[A-Za-z0-9_-]{1,64}$``."""
    return isinstance(value, str) and _VALID.match(value) is not None
