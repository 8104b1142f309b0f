"""Text as people see it: pure. Some characters show nothing, and some turn around what stands beside them."""

from __future__ import annotations

import unicodedata
from typing import Final

_UNSEEN: Final = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_BLANKS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters by their category, and empty on every screen."""
_JOINERS: Final = "\u200c\u200d"
"""They shape letters of scripts other than Latin, and pictures; anywhere else they only make two names look alike."""
_LINES: Final = "\n\t\r"
_WITHOUT_LINES: Final = dict.fromkeys(map(ord, _LINES))


def unseen(text: str) -> list[str]:
    """The characters of *text* that nobody sees, in order, as ``U+202E``."""
    return [_point(character) for place, character in enumerate(text) if _is_unseen(text, place)] if _odd(text) else []


def visible(text: str) -> str:
    """*text* with each such character spelled out, ``\\u202e``; line ends and tabs stay."""
    if not _odd(text.translate(_WITHOUT_LINES)):
        return text
    return "".join(
        f"\\u{ord(character):04x}" if character not in _LINES and _is_unseen(text, place) else character
        for place, character in enumerate(text)
    )


def _odd(text: str) -> bool:
    """Whether *text* may hold such a character: quick, for all the texts that hold none."""
    return not text.isprintable() or not _BLANKS.isdisjoint(text)


def _is_unseen(text: str, place: int) -> bool:
    character = text[place]
    if character in _JOINERS:
        return not all(
            beside and not beside.isascii() for beside in (text[max(place - 1, 0) : place], text[place + 1 : place + 2])
        )
    return character in _BLANKS or unicodedata.category(character) in _UNSEEN


def _point(character: str) -> str:
    return f"U+{ord(character):04X}"
