"""Conformance: every way back that a tool server declares, or its manifest describes, tried on scratch records (P4)."""

from recorder.conformance.exercise import Exercise, Result
from recorder.conformance.tally import Tally

__all__ = ["Exercise", "Result", "Tally"]
