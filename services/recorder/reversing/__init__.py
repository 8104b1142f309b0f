"""Reversals: an approved plan taken step by step, each at most once, each verified (G8, G9, G10, J19).

`build` wires the parts; `RecordSigner` signs Reversal Records.
"""

from recorder.reversing.parts import Reversing, build
from recorder.reversing.signing import RecordSigner

__all__ = ["RecordSigner", "Reversing", "build"]
