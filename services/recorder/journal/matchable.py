"""Which values of a call may link it to another by being equal (G1, inferred): pure.

A link that means nothing is worse than none: short texts, everyday words, flags and small numbers are equal by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MIN_CHARACTERS = 4
MIN_DIGITS = 4
MAX_CHARACTERS = 200
MAX_VALUES = 200

_EVERYDAY = """
    true false null none undefined unknown yes default other auto empty total value values name names type kind
    item items list text title label note notes status state active inactive enabled disabled pending open opened
    close closed done draft sent failed success error created updated deleted removed added moved changed
    completed cancelled canceled approved rejected started stopped high medium normal critical urgent left right
    first last next previous main primary public private user users admin owner member guest team customer client
    today tomorrow yesterday daily weekly monthly monday tuesday wednesday thursday friday saturday sunday january
    february march april june july august september october november december read write create update delete
    search find get call tool test example application json
"""
_WORDS = frozenset(_EVERYDAY.split())


def matchable_values(value: Any) -> list[str]:
    """The distinct values inside *value* that are worth comparing, in the order met, at most 200.

    Texts of 4 to 200 characters that are not everyday words; numbers of at least 4 digits, written the same whether they
    came as a number or as text.
    """
    found: dict[str, None] = {}
    for text in _scalars(value):
        if text in found or not _telling(text):
            continue
        found[text] = None
        if len(found) == MAX_VALUES:
            break
    return list(found)


def _scalars(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(reversed(item.values()))
        elif isinstance(item, list):
            pending.extend(reversed(item))
        elif isinstance(item, str):
            yield item.strip()
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield str(int(item)) if isinstance(item, float) and item.is_integer() else str(item)


def _telling(text: str) -> bool:
    if not MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS or text.casefold() in _WORDS:
        return False
    if text[0].isalpha() or any(character.isalpha() for character in text):
        return True
    return sum(character.isdigit() for character in text) >= MIN_DIGITS
