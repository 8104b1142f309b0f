"""What a window is, how it lapsed, whom a changed role concerns, and what review speeds suggest (N3, N4, N8, N9)."""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from notifier.agenda import RoleChange
from notifier.measuring import quantile, speed
from notifier.review import Known, Run, how_it_lapsed, review
from notifier.roles import affected, entitled
from notifier.windows import Lapse, Notice, Window, window_of
from takeback.messages.entry import Entry
from takeback.messages.review import Acknowledgement
from tests.unit.notifier.entries import NOW, histories

RUN = Run("run_1", "cmp_1", "sales", "ann", "closed")
RANK = ("quietly", "after_reminder", "after_escalation", "after_acknowledgement")
moments = st.integers(-4 * 60, 4 * 60).map(lambda minutes: NOW + timedelta(minutes=minutes))
notices = st.lists(
    st.builds(
        Notice,
        st.sampled_from(["ent_1", "ent_2"]),
        st.sampled_from(["reminder", "escalation"]),
        st.just("ann"),
        moments,
    ),
    max_size=4,
)
seen = st.lists(st.builds(Acknowledgement, by=st.just("ann"), at=moments, entries=st.just(["ent_1"])), max_size=2)


@given(histories(), moments)
def test_every_open_window_with_a_deadline_is_watched_and_no_other_entry_is(
    entries: list[Entry], now: datetime
) -> None:
    """G11, N3: a review lists as open, or closed, exactly what the notifier looks at."""
    found = review(RUN, entries, [], now)
    listed = {item.entry for item in found.open if item.undo_by is not None} | {item.entry for item in found.closed}
    assert listed == {window.entry for entry in entries if (window := window_of(entry)) is not None}


@given(moments, seen, notices)
def test_the_strongest_that_reached_somebody_in_time_counts(
    undo_by: datetime, acknowledged: list[Acknowledgement], told: list[Notice]
) -> None:
    """N4: what came later, or was about another entry, changes nothing."""
    before = {notice.kind for notice in told if notice.entry == "ent_1" and notice.delivered_at < undo_by}
    expected = "quietly"
    if "reminder" in before:
        expected = "after_reminder"
    if "escalation" in before:
        expected = "after_escalation"
    if any(one.at < undo_by for one in acknowledged):
        expected = "after_acknowledgement"
    how, by = how_it_lapsed("ent_1", undo_by, acknowledged, told)
    assert how == expected
    assert (by is not None) == (how == "after_acknowledgement")


@given(histories(), seen, notices, st.sampled_from(RANK))
def test_a_review_tells_of_a_lapse_what_the_journal_has(
    entries: list[Entry], acknowledged: list[Acknowledgement], told: list[Notice], how: str
) -> None:
    """N4: before there is a record it is computed in the same way, so the two cannot differ."""
    later = NOW + timedelta(hours=5)
    computed = review(RUN, entries, acknowledged, later, Known(told)).closed
    for item in computed:
        assert (item.lapsed, item.acknowledged_by) == how_it_lapsed(item.entry, item.undo_by, acknowledged, told)
    lapses = {item.entry: Lapse(item.entry, item.undo_by, how, None) for item in computed}  # type: ignore[arg-type]
    assert all(item.lapsed == how for item in review(RUN, entries, acknowledged, later, Known(told, lapses)).closed)


def test_a_changed_role_concerns_the_windows_over_which_its_authority_changed() -> None:
    """N9: an approver who becomes a member loses all but what they did themselves, or what asks for members."""
    windows = [
        Window("ent_1", "run_1", "cmp_1", "ann", NOW, NOW),
        Window("ent_2", "run_2", "cmp_1", "bob", NOW, NOW),
        Window("ent_3", "run_3", "cmp_1", "ann", NOW, NOW, "owner"),
    ]
    change = RoleChange("rec_1", "cmp_1", "bob", "approver", "member", "gm", NOW)
    assert set(affected(change, windows)) == {"run_1"}
    left = RoleChange("rec_2", "cmp_1", "bob", "member", None, "gm", NOW)
    assert set(affected(left, windows)) == {"run_2"}
    roles = {"ann": "member", "bob": "approver", "gm": "owner"}
    assert entitled(windows[:1], roles) == ["ann", "bob", "gm"]
    assert entitled(windows[2:], roles) == ["gm"]


def test_the_suggestion_is_what_95_of_100_reviews_took_and_says_what_it_would_have_caught() -> None:
    """N8."""
    observed = [float(second) for second in range(1, 101)]
    windows = [(60.0, 10, 4), (95.0, 5, 1), (86400.0, 85, 1)]
    suggestion = speed("ann", observed, windows).suggestion
    assert suggestion is not None
    assert (suggestion.min_window_seconds, suggestion.windows, suggestion.caught) == (95, 100, 10)
    assert (suggestion.share, suggestion.missed, suggestion.missed_caught, suggestion.missed_share) == (
        0.1,
        6,
        4,
        0.6667,
    )
    assert speed("ann", [], windows).suggestion is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_an_observed_value_within_which_that_share_lies(observed: list[float], share: float) -> None:
    """N8."""
    found = quantile(observed, share)
    assert found in observed
    assert sum(value <= found for value in observed) >= share * len(observed) - 1e-9
