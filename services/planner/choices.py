"""Whether a decision fits its plan, and who may take it: pure (G5, G6, G7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.fact import Fact
from takeback.authority import authority_over
from takeback.errors import Problem, invalid
from takeback.messages.campaign import Role
from takeback.messages.events import PlanDecided
from takeback.messages.plan import Plan, PlanDecision


def check(plan: Plan, decision: PlanDecision, fields: Mapping[str, Iterable[str]]) -> None:
    """Raises `Problem` 409 for another digest and 422 for a choice about what is no step; *fields* are what each changed."""
    if decision.digest != plan.digest:
        raise Problem(
            409,
            "digest-mismatch",
            "The digest is not this plan's: what was approved is not what would run. Nothing was changed; read the plan again.",
            plan=plan.id,
        )
    steps = {step.entry for step in plan.steps}
    for name, entries in (
        ("leaveOut", decision.leave_out),
        ("override", decision.override),
        ("fields", list(decision.fields)),
    ):
        if strangers := sorted(set(entries) - steps):
            raise invalid(f"{name} names what is no step of this plan: {', '.join(strangers)}.")
    if both := sorted(set(decision.leave_out) & {*decision.override, *decision.fields}):
        raise invalid(f"A step is either left out or run: {', '.join(both)}.")
    for entry, wanted in decision.fields.items():
        known = set(fields.get(entry, ()))
        if not wanted or (unknown := sorted(set(wanted) - known)):
            told = ", ".join(unknown) if wanted else "none"
            raise invalid(
                f"fields of {entry} must be among those that it changed ({', '.join(sorted(known))}), not {told}."
            )


def authority(sub: str, role: Role | None, facts: Iterable[Fact]) -> str | None:
    """In what capacity *sub* may take back every one of *facts*; None when one of them is out of reach (G7).

    Where the capacities differ it is the narrowest that decides about the whole, as the receipts say one by one.
    """
    held = [authority_over(sub, role, fact.entry.principal, fact.entry.undo.undo_authority) for fact in facts]
    if not held:
        return authority_over(sub, role, sub, None)
    if any(one is None for one in held):
        return None
    return max((one for one in held if one is not None), key=_NARROWNESS.index)


def to_be_judged(plan: Plan, decision: PlanDecision) -> list[str]:
    """The entries over which whoever decides needs authority: the steps that are not left out, else the targets."""
    steps: Sequence[str] = [step.entry for step in plan.steps if step.entry not in decision.leave_out]
    return list(steps or plan.targets)


def is_same(decided: PlanDecided, decision: PlanDecision) -> bool:
    """Whether *decision* says again what was decided before: then it is answered, not done anew (G9)."""
    return (
        decided.decision == decision.decision
        and decided.digest == decision.digest
        and set(decided.leave_out) == set(decision.leave_out)
        and set(decided.override) == set(decision.override)
        and {entry: sorted(names) for entry, names in decided.fields.items()}
        == {entry: sorted(names) for entry, names in decision.fields.items()}
    )


_NARROWNESS = ["owner", "approver", "undoAuthority", "principal"]
