"""Reversals: an approved plan taken step by step, each at most once, each verified (G8, G9, G10, J19).

`build` wires the parts.
"""

from recorder.reversing.parts import Reversing, build

__all__ = ["Reversing", "build"]
