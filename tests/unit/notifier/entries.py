"""Entries as hypothesis makes them."""

from datetime import UTC, datetime, timedelta
from typing import get_args

from hypothesis import strategies as st

from takeback.messages.entry import Effect, Entry, EntryKind, EntryStatus, Undo, UndoKind, Unresolved, Via

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)

undos = st.builds(
    Undo,
    kind=st.sampled_from(get_args(UndoKind)),
    via=st.sampled_from(get_args(Via)),
    undo_by=st.none() | st.integers(-3, 3).map(lambda hours: NOW + timedelta(hours=hours)),
)
effects = st.builds(Effect, resource=st.just("crm://deal/1"), version=st.none() | st.just("7"))


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """The entries of one run, in the order of their intents."""
    return [
        Entry(
            id=f"ent_{number}",
            label=f"e{number}",
            run="run_1",
            campaign="cmp_1",
            interaction=draw(st.sampled_from([None, "t1", "t2"])),
            server="crm",
            operation="set_stage",
            tier="high",
            kind=draw(st.sampled_from(get_args(EntryKind))),
            status=draw(st.sampled_from(get_args(EntryStatus))),
            principal="ann",
            agent="sales",
            model="m",
            effects=draw(st.lists(effects, max_size=2)),
            undo=draw(undos),
            unresolved=draw(st.just([]) | st.just([Unresolved(field="undo.kind", reason="no such kind")])),
            broadcasts=draw(st.lists(st.integers(), max_size=2)),
            reverted_by=draw(st.none() | st.just("ent_r")),
            created_at=NOW,
        )
        for number in range(1, draw(st.integers(0, 8)) + 1)
    ]
