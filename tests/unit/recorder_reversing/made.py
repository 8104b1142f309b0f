"""Plans, entries and observations made by hand, and strategies for arbitrary ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from recorder.reversing.work import Decided
from takeback.extension import Observation
from takeback.messages.entry import Before, Effect, Entry, FieldChange, Undo
from takeback.messages.plan import Because, Plan, Step, UnresolvedEntry

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def entry(id_: str = "ent_1", *, resource: str = "crm://deal/1", **changed: Any) -> Entry:
    effect = Effect(
        resource=resource,
        before=Before(version="1", fields={"stage": "open"}),
        version="2",
        changes=[FieldChange(field="stage", old="open", new="won")],
    )
    known: dict[str, Any] = {
        "id": id_, "label": "e1", "run": "run_1", "campaign": "cmp_1", "server": "crm", "operation": "move",
        "tier": "high", "kind": "call", "status": "committed", "principal": "ann", "agent": "bot", "model": "m1",
        "effect": effect, "effects": [effect], "created_at": NOW,
        "undo": Undo(kind="compensate", if_version="2", undo_by=NOW + timedelta(days=1)),
    }  # fmt: skip
    return Entry(**{**known, **changed})


def step(id_: str = "ent_1", *, because: Sequence[str] = (), source: str = "declared", **changed: Any) -> Step:
    known: dict[str, Any] = {
        "entry": id_, "label": id_, "server": "crm", "operation": "move", "resource": "crm://deal/1",
        "if_version": "2", "observed_version": "2",
    }  # fmt: skip
    return Step(**{**known, **changed}, because=[Because(entry=other, source=source) for other in because])


def decided(*steps: Step, unresolved: Sequence[str] = (), **decision: Any) -> Decided:
    plan = Plan(
        id="pln_1",
        campaign="cmp_1",
        digest="d",
        status="proposed",
        as_of=NOW,
        targets=[item.entry for item in steps],
        steps=list(steps),
        unresolved=[UnresolvedEntry(entry=broken, reason="broken") for broken in unresolved],
    )
    return Decided(plan=plan, by="ann", **decision)


def seen(fields: Mapping[str, Any] | None, version: str | None = "3") -> Observation:
    return Observation(exists=fields is not None, version=version, fields=None if fields is None else dict(fields))


values = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
records = st.dictionaries(st.sampled_from("abcde"), values, max_size=5)


@st.composite
def plans(draw: st.DrawFn) -> Decided:
    """A plan of up to eight steps in which each may build on any that stand behind it."""
    ids = [f"ent_{n}" for n in range(draw(st.integers(1, 8)))]
    steps = [
        step(id_, because=draw(st.lists(st.sampled_from(ids[n + 1 :]), unique=True)) if ids[n + 1 :] else ())
        for n, id_ in enumerate(ids)
    ]
    return decided(*steps, leave_out=frozenset(draw(st.lists(st.sampled_from(ids), unique=True))))
