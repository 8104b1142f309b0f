"""Policy: whether a call goes on, waits for a person, or is refused; by how far it can be taken back (P1 to P4, P9). Pure.

The agent never learns why in the policy's words (P10): `Decision.why` is what it may be told, `Decision.because` is for people.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from takeback.messages.campaign import Policy
from takeback.messages.entry import UndoKind, Via

Verdict = Literal["allow", "ask", "deny"]

ASKED: Final = "A person has to agree before this call is made."
REFUSED: Final = "This call may not be made here."


class Question(NamedTuple):
    """What is known of a call before it is made.

    *window_seconds*: how long it can be taken back, None where no end is declared. *attended_in*: in how many seconds
    somebody is on duty who may take it back, None where nobody has a calendar. *doubt*: the earlier entry whose outcome
    is not known and that this call would touch or repeat (J7). *repairs*: it remedies or corrects another entry (J14).
    """

    operation: str
    read: bool = False
    undo: UndoKind = "unknown"
    via: Via = "api"
    window_seconds: float | None = None
    versioned: bool = False
    exercised: bool = False
    pin_changed: bool = False
    pin_difference: str = ""
    repairs: bool = False
    doubt: str | None = None
    attended_in: float | None = None


class Decision(NamedTuple):
    """The verdict, what the caller may be told, and the reasons, which only people read."""

    verdict: Verdict
    why: str = ""
    because: tuple[str, ...] = ()


ALLOWED: Final = Decision("allow")


def decide(policy: Policy, question: Question) -> Decision:
    """What *policy* says of the call.

    A rule for the operation outranks what reversibility demands, both ways; it does not outrank what is not about the
    operation at all: a definition that changed under its pin, a repair (J14), an earlier call in doubt (J7).
    """
    rule = policy.operations.get(question.operation)
    if rule == "deny":
        return Decision("deny", REFUSED, ("the policy denies the operation",))
    reasons = list(_demanded_always(question))
    if rule == "ask":
        reasons.append("the policy asks for the operation")
    elif rule is None and not question.read:
        reasons.extend(_demanded_by_reversibility(policy, question))
    if not reasons:
        return ALLOWED
    return Decision("ask", _told(question), tuple(reasons))


def on_snapshot_failure(policy: Policy, reason: str) -> Decision:
    """Whether a call goes on whose record could not be read before it (J4)."""
    match policy.on_snapshot_failure:
        case "proceed":
            return ALLOWED
        case "deny":
            return Decision("deny", REFUSED, (f"the state before the call cannot be read: {reason}",))
        case "ask":
            return Decision("ask", ASKED, (f"the state before the call cannot be read: {reason}",))


def _demanded_always(question: Question) -> list[str]:
    reasons = []
    if question.doubt is not None and not question.read:
        reasons.append(f"the outcome of {question.doubt} is not known")
    if question.pin_changed:
        told = f": {question.pin_difference}" if question.pin_difference else ""
        reasons.append(f"the operation's definition is no longer the one that was pinned{told}")
    if question.repairs:
        reasons.append("it remedies or corrects another entry")
    return reasons


def _demanded_by_reversibility(policy: Policy, question: Question) -> list[str]:
    if question.undo != "compensate":
        what = "cannot be taken back" if question.undo == "none" else "is not known to be reversible"
        return [f"the operation {what}"]
    reasons = []
    if question.via == "ui":
        reasons.append("it would be taken back through a user interface")
    if not question.versioned:
        reasons.append("its records have no version, so it cannot be taken back automatically")
    minimum = policy.min_window_seconds
    if minimum is not None and question.window_seconds is not None and question.window_seconds < minimum:
        reasons.append(f"it can be taken back for {question.window_seconds:.0f} s only, less than {minimum} s")
    attended = question.attended_in
    if attended is not None and question.window_seconds is not None and question.window_seconds <= attended:
        reasons.append("nobody who may take it back is on duty before its window closes")
    if policy.require_exercised and not question.exercised:
        reasons.append("its undo has never been exercised")
    return reasons


def _told(question: Question) -> str:
    if question.doubt is not None and not question.read:
        return (
            f"It is not known whether the earlier call {question.doubt} took effect. {ASKED} "
            "Do not call again under another name: wait until that entry is settled."
        )
    return ASKED
