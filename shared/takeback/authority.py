"""Who may take back what (G7): pure, the same for the planner, which asks first, and the recorder, which asks again."""

from __future__ import annotations

from takeback.messages.campaign import Role


def authority_over(sub: str, role: Role | None, principal: str, undo_authority: str | None) -> str | None:
    """In what capacity *sub* may take back an entry of *principal*, or None.

    *role* is what *sub* holds in the entry's campaign, None for somebody who is not a member. Where *undo_authority* (a
    role or a sub) is set, only that or an owner counts; else the principal, an owner or an approver. The answer is
    ``owner``, ``approver``, ``principal`` or ``undoAuthority``, as it stands in the receipt.
    """
    if role is None:
        return None
    if role == "owner":
        return "owner"
    if undo_authority is not None:
        return "undoAuthority" if undo_authority in (sub, role) else None
    if sub == principal:
        return "principal"
    return "approver" if role == "approver" else None
