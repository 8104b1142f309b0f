"""What one dispatch came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recorder.reversing.outcome import Judgement, Part
from takeback.extension import Observation, UndoAnswer


@dataclass(frozen=True, slots=True)
class Finding:
    """The judgement, the records by the names that the claim gave them as they are now, and what the server said."""

    judgement: Judgement
    parts: Sequence[Part] = ()
    after: Mapping[str, Observation] = field(default_factory=dict)
    said: UndoAnswer | None = None
