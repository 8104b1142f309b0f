"""A review is a function of the entries, the acknowledgements and the clock (N1, N2, N4)."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from notifier.review import Run, how_it_lapsed, review, with_unsettled
from takeback.messages.entry import Entry
from takeback.messages.review import Acknowledgement
from takeback.standing import standing
from tests.unit.notifier.entries import NOW, histories

RUN = Run("run_1", "cmp_1", "sales", "ann", "closed")
SECTIONS = ("open", "closed", "not_reversible", "unresolved", "reverted")
moments = st.integers(-4 * 60, 4 * 60).map(lambda minutes: NOW + timedelta(minutes=minutes))


@st.composite
def acknowledgements(draw: st.DrawFn) -> list[Acknowledgement]:
    """In the order of the journal."""
    at = sorted(draw(st.lists(moments, max_size=3)))
    names = st.integers(1, 8).map("ent_{}".format)
    return [
        Acknowledgement(by=f"person-{number}", at=when, entries=draw(st.lists(names))) for number, when in enumerate(at)
    ]


@given(histories(), acknowledgements(), moments)
def test_every_call_stands_in_exactly_one_section(entries, acknowledged, now) -> None:
    """G11: nothing in a review contradicts another part of it."""
    found = review(RUN, entries, acknowledged, now)
    listed = [item.entry for section in SECTIONS for item in getattr(found, section)]
    assert sorted(listed) == sorted(entry.id for entry in entries if entry.kind not in ("read", "reversal"))


@given(histories(), moments)
def test_open_windows_come_by_the_earliest_deadline_and_have_time_left(entries, now) -> None:
    """N2: those without a deadline come last."""
    found = review(RUN, entries, [], now).open
    deadlines = [window.undo_by for window in found]
    dated = [deadline for deadline in deadlines if deadline is not None]
    assert deadlines[: len(dated)] == sorted(dated)
    assert all(deadline > now for deadline in dated)
    assert all((window.seconds_left is None) == (window.undo_by is None) for window in found)
    assert all(window.seconds_left >= 0 for window in found if window.seconds_left is not None)


@given(histories(), moments)
def test_a_review_and_a_plan_classify_alike(entries: list[Entry], now) -> None:
    """G11: what is open is a step, and the other way round."""
    found = review(RUN, entries, [], now)
    calls = [entry for entry in entries if entry.kind != "reversal"]
    steps = {entry.id: standing(entry, now).needs_person for entry in calls if standing(entry, now).place == "step"}
    assert {window.entry: window.needs_person for window in found.open} == steps
    gone = {entry.id for entry in calls if standing(entry, now).reason == "window_closed"}
    assert {window.entry for window in found.closed} == gone


@given(histories(), acknowledgements(), moments, st.integers(0, 10_000))
def test_how_a_window_lapsed_never_changes_afterwards(entries, acknowledged, now, seconds) -> None:
    """N4: an acknowledgement that comes after the deadline changes nothing."""
    early, late = (
        {window.entry: (window.lapsed, window.acknowledged_by) for window in review(RUN, entries, seen, at).closed}
        for seen, at in (
            ([one for one in acknowledged if one.at <= now], now),
            (acknowledged, now + timedelta(seconds=seconds)),
        )
    )
    assert early.items() <= late.items()


@given(acknowledgements(), moments)
def test_a_window_lapsed_after_the_first_acknowledgement_before_its_deadline(acknowledged, undo_by) -> None:
    """N4."""
    before = [one.by for one in acknowledged if "ent_1" in one.entries and one.at < undo_by]
    expected = ("after_acknowledgement", before[0]) if before else ("quietly", None)
    assert how_it_lapsed("ent_1", undo_by, acknowledged) == expected


@given(histories(), histories())
def test_the_later_state_of_an_unsettled_entry_counts(entries, unsettled) -> None:
    """What was concluded since is not made open again; what was claimed since is not called open any more."""
    merged = {entry.id: entry for entry in with_unsettled(entries, unsettled)}
    assert merged.keys() == {entry.id for entry in [*entries, *unsettled]}
    for entry in entries:
        if entry.status in ("failed", "denied", "reverted"):
            assert merged[entry.id] == entry
    assert [int(entry.label[1:]) for entry in merged.values()] == sorted(int(e.label[1:]) for e in merged.values())
