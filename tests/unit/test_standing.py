"""Where an entry stands is one answer for plans and reviews (G4, G11, J9, J10, J11)."""

from datetime import timedelta

import pytest
from hypothesis import given

from takeback.messages.entry import Effect, Entry, Undo, Unresolved
from takeback.standing import standing
from tests.unit.notifier.entries import NOW, histories

HOUR = timedelta(hours=1)


def entry(**changed: object) -> Entry:
    """A committed call with a versioned effect and an open window."""
    return Entry(
        **{
            "id": "ent_1", "label": "e1", "run": "run_1", "campaign": "cmp_1", "server": "crm", "operation": "set_stage",
            "tier": "high", "kind": "call", "status": "committed", "principal": "ann", "agent": "sales", "model": "m",
            "effects": [Effect(resource="crm://deal/1", version="7")],
            "undo": Undo(kind="compensate", undo_by=NOW + HOUR), "created_at": NOW,
        }
        | changed
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "place", "reason", "needs_person"),
    [
        ({}, "step", None, None),
        ({"effects": [], "effect": Effect(resource="crm://deal/1", version="7")}, "step", None, None),
        ({"effects": [Effect(resource="crm://deal/1")]}, "step", None, "no_version"),
        ({"effects": []}, "step", None, "no_version"),
        ({"undo": Undo(kind="compensate", via="ui")}, "step", None, "ui"),
        ({"undo": Undo(kind="compensate", undo_by=NOW)}, "notReversible", "window_closed", None),
        ({"undo": Undo(kind="none")}, "notReversible", "declared", None),
        ({"undo": Undo()}, "notReversible", "unknown", None),
        ({"status": "failed"}, "notReversible", "failed", None),
        ({"status": "denied"}, "notReversible", "failed", None),
        ({"status": "awaiting_approval"}, "notReversible", "failed", None),
        ({"status": "pending"}, "unresolved", None, None),
        ({"status": "in_doubt"}, "unresolved", None, None),
        ({"status": "reverting"}, "unresolved", None, None),
        ({"unresolved": [Unresolved(field="undo.kind", reason="no such kind")]}, "unresolved", None, None),
        ({"status": "reverted"}, "reverted", None, None),
        ({"kind": "read"}, "unlisted", None, None),
    ],
)
def test_each_state_has_its_place(changed, place, reason, needs_person) -> None:
    found = standing(entry(**changed), NOW)
    assert (found.place, found.reason, found.needs_person) == (place, reason, needs_person)


@given(histories())
def test_a_broken_declaration_is_never_called_irreversible(entries: list[Entry]) -> None:
    """J11: unresolved is not irreversible."""
    for one in entries:
        if one.unresolved and one.status == "committed" and one.kind != "read":
            assert standing(one, NOW).place == "unresolved"


@given(histories())
def test_only_what_has_a_reason_is_not_reversible(entries: list[Entry]) -> None:
    for one in entries:
        found = standing(one, NOW)
        assert (found.reason is not None) == (found.place == "notReversible")
        assert bool(found.detail) == (found.place in ("notReversible", "unresolved"))
