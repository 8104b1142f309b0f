"""When a delivery is tried again: pure, with chance handed in (N7)."""

from __future__ import annotations

from collections.abc import Sequence

TRIES_AGAIN = 7
_JITTER = 0.25


def waits_of(setting: str) -> tuple[float, ...]:
    """The seconds between tries that *setting* asks for.

    One number is the first wait, doubled each time, seven times in all; several, separated by commas, are the waits
    themselves. Raises ValueError for what says neither.
    """
    waits = tuple(float(part) for part in setting.split(","))
    if not all(0 <= wait < float("inf") for wait in waits):
        raise ValueError(f"waits are seconds, 0 or more: {setting!r}")
    return tuple(waits[0] * 2**again for again in range(TRIES_AGAIN)) if len(waits) == 1 else waits


def next_wait(waits: Sequence[float], attempts: int, chance: float, asked_seconds: float = 0.0) -> float | None:
    """Seconds until the next try after *attempts* of them, or None when it is given up.

    *chance*, from 0 up to 1, spreads what failed together: up to a quarter longer, never shorter. A receiver that asked
    for *asked_seconds* (Retry-After) gets them.
    """
    if attempts > len(waits):
        return None
    return max(waits[attempts - 1] * (1 + _JITTER * chance), asked_seconds)
