"""Settling a doubt: what a tool server's answer proves of a call whose outcome nobody heard (J7). Pure.

A version alone proves nothing: somebody else may have moved it, and a call under way may still arrive. What counts is the
server's word on the idempotency key, or the record standing exactly as the call was to leave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recorder.intake import Snapshot
from takeback.extension import EXTENSION, Observation
from takeback.messages.entry import Effect


@dataclass(frozen=True, slots=True)
class Proof:
    """How the call ended, and by what that is known. *meta* and *result* are the tool's own, where it kept them."""

    step: Literal["commit", "fail"]
    by: Literal["key", "record"]
    meta: Any = None
    result: Mapping[str, Any] | None = None
    detail: str = ""


def proof_in(seen: Observation, snapshot: Snapshot | None, foretold: Sequence[Effect]) -> Proof | None:
    """What *seen* proves of the call, or None: then it takes more evidence, or a person.

    *snapshot*: the record before the call. *foretold*: what the tool's dry run said that the call would do.
    """
    answer = seen.call
    if answer is not None and answer.outcome == "committed":
        return Proof("commit", "key", _part(answer.meta), answer.result)
    if answer is not None and answer.outcome == "failed":
        return Proof("fail", "key", None, answer.result, "The tool server says that the call failed.")
    if answer is not None and answer.outcome == "never":
        return Proof(
            "fail", "key", detail="The tool server never saw the call, and will refuse it should it still arrive."
        )
    if snapshot is not None and _stands_as_foretold(seen, snapshot, foretold):
        return Proof("commit", "record")
    return None


def _stands_as_foretold(seen: Observation, snapshot: Snapshot, foretold: Sequence[Effect]) -> bool:
    effect = next((effect for effect in foretold if effect.resource in (None, snapshot.resource)), None)
    before = snapshot.seen
    if effect is None or not effect.changes or before is None or before.exists is None or seen.exists is None:
        return False
    if effect.may_change:  # what else it may leave is not known, so nothing is exactly as foretold
        return False
    fields = dict(before.fields or {}) if before.exists else {}
    left = {**fields, **{change.field: change.new for change in effect.changes}}
    if before.exists and all(value is None for value in left.values()):
        return seen.exists is False  # a delete
    if left == fields and before.exists:
        return False  # a call that changes nothing leaves no trace to find
    return (
        bool(seen.exists) and (seen.fields or {}) == left and (seen.version is None or seen.version != before.version)
    )


def _part(meta: Any) -> Any:
    """The extension's part, whether the server answers with it alone or with the ``_meta`` around it."""
    return meta[EXTENSION] if isinstance(meta, Mapping) and EXTENSION in meta else meta
