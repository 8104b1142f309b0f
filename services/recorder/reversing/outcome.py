"""What an undo's answer and the records after it prove: pure (G8, G9, S5, S8). Unknown is a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from takeback.extension import CallOutcome, Observation, UndoOutcome
from takeback.messages.plan import StepOutcome

Answer = UndoOutcome | Literal["none", "not_sent", "refused"]
"""What came back for the undo: the server's word, or nothing, or that it was never sent, or that the server refused it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One record of the entry: what is wrong with it after the undo, and whether it was touched at all.

    *wrong* is None where it could not be observed now; *unobservable* says that it never can be.
    """

    resource: str
    expected_version: str | None
    before: Observation | None
    after: Observation | None
    wrong: Sequence[str] | None
    untouched: bool
    unobservable: bool = False

    @property
    def verified(self) -> bool:
        """Whether the record was seen to be as it was before the call."""
        return self.wrong is not None and not self.wrong


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one dispatch. *resumed*: it was sent before, so a refusal now proves nothing about then.

    *call* is the server's own answer for the idempotency key, where it was asked.
    """

    answer: Answer
    parts: Sequence[Part] = ()
    resumed: bool = False
    call: CallOutcome | None = None
    detail: str | None = field(default=None)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The step's outcome, and why in words."""

    outcome: StepOutcome
    detail: str | None = None


def judge(evidence: Evidence) -> Judgement:
    """The outcome that *evidence* proves.

    `reverted` only where every record was seen as it was before. `conflict` and `failed` only where nothing happened. A claim
    of success that does not show is `unverified`. Anything else is `in_doubt`.
    """
    match evidence.answer:
        case "reverted":
            return _claimed(evidence, "reverted")
        case "already_reverted":
            return _claimed(evidence, "reverted" if evidence.resumed else "already_reverted")
        case "unknown" | "unverified":
            return _claimed(evidence, "reverted")
        case "conflict" | "failed" | "refused" | "not_sent":
            return _declined(evidence)
        case "none":
            return _by_evidence(evidence)


def _claimed(evidence: Evidence, outcome: StepOutcome) -> Judgement:
    if _verified(evidence):
        return Judgement(outcome)
    if not evidence.parts or any(part.unobservable for part in evidence.parts):
        return Judgement(
            "unverified", "The tool server says that it is done, and there is no way to read the record back."
        )
    if any(part.wrong is None for part in evidence.parts):
        return Judgement("in_doubt", "The tool server answered, and the record could not be read back yet.")
    if evidence.answer == "unverified" and evidence.detail:
        return Judgement("unverified", f"{_sentence(evidence.detail)}. Seen now: {_wrong(evidence)}.")
    return Judgement("unverified", f"The tool server says that it is done, but {_wrong(evidence)}.")


def _declined(evidence: Evidence) -> Judgement:
    if evidence.resumed:
        return _by_evidence(evidence)
    if evidence.answer == "conflict":
        return Judgement("conflict", evidence.detail or "The record was changed since. Nothing was changed.")
    told = _sentence(evidence.detail or "no reason was given")
    if evidence.answer == "not_sent":
        return Judgement("failed", f"The tool server could not be reached: {told}. Nothing was changed.")
    if evidence.answer == "refused":
        return Judgement("failed", f"The tool server refused it: {told}. Nothing was changed.")
    seen = [part for part in evidence.parts if part.wrong is not None]
    if all(part.untouched for part in seen):
        return Judgement("failed", f"The tool server could not do it: {told}. Nothing was changed.")
    return Judgement(
        "unverified", f"The tool server says that it failed ({told}), yet the record was changed meanwhile."
    )


def _by_evidence(evidence: Evidence) -> Judgement:
    """No word of the server's counts: the answer for the key does, and the record itself."""
    if evidence.call in ("never", "failed"):
        if evidence.answer == "conflict":
            return Judgement("conflict", evidence.detail or "The record was changed since. Nothing was changed.")
        return Judgement(
            "failed", "The tool server says that the undo did not happen and will not. Nothing was changed."
        )
    if _verified(evidence) and not all(part.untouched for part in evidence.parts):
        return Judgement("reverted")
    if evidence.call == "committed":
        return _claimed(evidence, "reverted")
    return Judgement(
        "in_doubt",
        evidence.detail
        or "No answer came, and nothing proves yet whether it was taken back. It will not be sent anew.",
    )


def _verified(evidence: Evidence) -> bool:
    return bool(evidence.parts) and all(part.verified for part in evidence.parts)


def _sentence(detail: str) -> str:
    """A server's words without their end, which is ours to say."""
    return detail.strip().removesuffix(".").removesuffix("Nothing was changed").rstrip().removesuffix(".")


def _wrong(evidence: Evidence) -> str:
    return "; ".join(f"{part.resource}: {', '.join(part.wrong)}" for part in evidence.parts if part.wrong)[:1500]
