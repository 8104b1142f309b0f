"""Versions of schemas, by file name (`events/entry.committed`, `http/PlanRequest`); 1 where none stands here.

Raise one only for a change that an older reader cannot follow, together with a decision record that says why.
"""

from __future__ import annotations

VERSIONS: dict[str, int] = {}
