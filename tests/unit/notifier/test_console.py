"""The console's words and pictures: pure."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.console import drawing, words
from notifier.console.desk import environment
from notifier.console.pages.plans import decision_of, needs_choice, untouched_fields
from notifier.console.pages.runs import turns_of
from notifier.duties import Duties
from notifier.escalation import People
from notifier.windows import Window
from takeback.duty import Calendar, spans
from takeback.errors import Problem
from tests.unit.test_duty import calendars, instants

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (30, "closes in less than a minute"),
        (119 * 60, "closes in 119 min"),
        (3 * 3600, "closes in 3 h"),
        (47 * 3600, "closes in 47 h"),
        (8 * 86400, "closes in 8 days"),
        (-300, "closed 5 min ago"),
    ],
)
def test_times_are_said_in_words_that_a_tired_person_understands(seconds: int, said: str) -> None:
    """U2."""
    assert words.closes(NOW + timedelta(seconds=seconds), NOW) == said


def told_of(sub: str, told: str = "reminder", **times: datetime | None) -> dict[str, Any]:
    """Somebody's duty before a window closes, as the API says it."""
    at = {name: None if moment is None else moment.isoformat() for name, moment in times.items()}
    return {"sub": sub, "told": told, "zone": "UTC", "onDutyFrom": None, "onDutyUntil": None, "backAt": None} | at


HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OFF_UNTIL_TOMORROW = told_of("Anna", backAt=NOW + DAY)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ([OFF_UNTIL_TOMORROW], "before Anna is back tomorrow"),
        ([told_of("Anna", backAt=NOW + 4 * DAY)], "before Anna is back on Friday"),
        ([told_of("Anna", backAt=NOW + 9 * DAY)], "before Anna is back on 9\u00a0Dec"),
        ([told_of("Anna", backAt=NOW + 40 * DAY)], "before Anna is back on 9\u00a0Jan\u00a02027"),
        ([told_of("Anna", backAt=NOW + 3 * HOUR)], "before Anna is back in 3 h"),
        ([told_of("dana", backAt=NOW + DAY)], "before you are back tomorrow"),
        ([told_of("Anna")], "while Anna is away"),
        ([told_of("Anna", onDutyFrom=NOW + HOUR, onDutyUntil=NOW + 2 * HOUR)], "after Anna is back in 60 min"),
        (
            [told_of("Anna", onDutyFrom=NOW, onDutyUntil=NOW + 90 * timedelta(minutes=1))],
            "after Anna's duty ends in 90 min",
        ),
        ([told_of("Anna", onDutyFrom=NOW, onDutyUntil=NOW + 2 * HOUR)], ""),
        (
            [OFF_UNTIL_TOMORROW, told_of("Ben", "escalation", onDutyFrom=NOW)],
            "before Anna is back tomorrow; Ben is on duty",
        ),
        (
            [OFF_UNTIL_TOMORROW, told_of("Ben", "escalation", onDutyFrom=NOW + HOUR)],
            "before Anna is back tomorrow; Ben is back in 60 min",
        ),
        ([OFF_UNTIL_TOMORROW, told_of("Ben", "escalation", backAt=NOW + DAY)], "before Anna is back tomorrow"),
        ([told_of("Ben", "escalation", backAt=NOW + DAY)], ""),
        ([], ""),
    ],
)
def test_a_window_says_who_is_there_before_it_closes(known: list[dict[str, Any]], said: str) -> None:
    """U2, P3: closes in 2 h, before Anna is back on Monday."""
    window = {"undoBy": (NOW + 2 * HOUR).isoformat(), "duty": known}
    assert words.duty(window, NOW, "dana") == said


def test_nothing_is_said_of_duty_where_nothing_closes_any_more() -> None:
    """U2: no deadline, or one that is over."""
    for until in (None, NOW.isoformat()):
        assert words.duty({"undoBy": until, "duty": [OFF_UNTIL_TOMORROW]}, NOW, "dana") == ""


@given(calendars, instants, st.integers(1, 3 * 24 * 60))
def test_somebody_is_back_only_afterwards_exactly_where_they_are_not_on_duty_before(
    calendar: Calendar, now: datetime, minutes: int
) -> None:
    """U2, P3: the words follow from the calendar, for every zone and week."""
    until = now + timedelta(minutes=minutes)
    window = Window("ent_1", "run_1", "cmp_1", "Anna", now, until)
    known = [one.wire() for one in Duties(People({"Anna": "member"}, {"Anna": calendar}), None, now).before(window)]
    said = words.duty({"undoBy": until.isoformat(), "duty": known}, now, "dana")
    stretches = list(spans(calendar, now, until))
    assert said.startswith(("before ", "while ")) == (not stretches)
    there = bool(stretches) and stretches[0].start - now < timedelta(minutes=1)
    assert (said == "") == (there and stretches[-1].end == until)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_fits_on_a_line(anything: Any) -> None:
    assert 0 < len(words.value(anything)) <= 120


def test_a_sealed_value_is_said_to_be_secret_and_no_value_is_told_from_an_empty_one() -> None:
    """J18: what is sealed is said to be."""
    assert [words.value(one) for one in ({"sealed": True}, None, "", [])] == ["secret", "nothing", "(empty)", "(none)"]


def entry(id_: str, interaction: str | None, **more: Any) -> dict[str, Any]:
    return {"id": id_, "label": id_, "interaction": interaction, "kind": "call", "status": "committed"} | more


def test_the_latest_turn_is_the_newest_with_a_change_that_happened() -> None:
    """U1: reads and refused calls make no turn that could be undone."""
    turns = turns_of(
        [
            entry("e5", "t3", kind="read"),
            entry("e4", None, kind="reversal"),
            entry("e3", "t2"),
            entry("e2", "t2", status="reverted"),
            entry("e1", "t1"),
        ],
        with_latest=True,
    )
    assert [(turn.interaction, turn.latest, len(turn.entries)) for turn in turns] == [
        ("t3", False, 1), (None, False, 1), ("t2", True, 2), ("t1", False, 1),
    ]  # fmt: skip
    assert not any(turn.latest for turn in turns_of([entry("e1", "t1")], with_latest=False))


def test_of_several_links_between_two_entries_the_surest_is_drawn() -> None:
    """G1: a default link stays, and is not what is shown where somebody declared more."""
    links = [
        {"id": source, "entry": "e2", "dependsOn": "e1", "source": source}
        for source in ("default", "declared", "inferred")
    ]
    picture = drawing.graph([entry("e1", None), entry("e2", None)], links, all_links=False)
    assert [arc.source for arc in picture.arcs] == ["declared"]
    assert picture.hidden == 0


@given(st.integers(2, 60), st.booleans())
def test_a_carpet_of_default_links_is_left_out_and_counted(many: int, every: bool) -> None:
    """G2: nothing is hidden without saying how much."""
    entries = [entry(f"e{number}", None) for number in range(many)]
    links = [
        {"id": f"l{a}-{b}", "entry": f"e{b}", "dependsOn": f"e{a}", "source": "default"}
        for a in range(many)
        for b in range(a + 1, many)
    ]
    picture = drawing.graph(entries, links, all_links=every)
    assert len(picture.arcs) + picture.hidden == len(links)
    assert not (every and picture.hidden)
    assert 0 <= picture.left < drawing.LEFT


def test_a_form_becomes_exactly_the_decision_that_was_seen() -> None:
    """G5, G6."""
    form = {
        "decision": ["approve"], "digest": ["d"], "reason": ["why"], "category": ["misread"], "csrf": ["x"],
        "step:ent_1": ["back"], "step:ent_2": ["leave"], "step:ent_3": ["override"], "step:ent_4": ["fields"],
        "fields:ent_4": ["stage", "owner"],
    }  # fmt: skip
    assert decision_of(form) == {
        "decision": "approve", "digest": "d", "leaveOut": ["ent_2"], "override": ["ent_3"],
        "fields": {"ent_4": ["stage", "owner"]}, "reason": "why", "category": "misread",
    }  # fmt: skip
    with pytest.raises(Problem):
        decision_of(form | {"step:ent_1": ["whatever"]})


def plan(**more: Any) -> dict[str, Any]:
    step = {"entry": "e1", "conflict": None, "needsPerson": None}
    return {"steps": [step], "notReversible": [], "unresolved": []} | more


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (plan(), False),
        (plan(notReversible=[{"entry": "e2", "reason": "failed"}]), False),
        (plan(notReversible=[{"entry": "e2", "reason": "declared"}]), True),
        (plan(unresolved=[{"entry": "e2"}]), True),
        (plan(steps=[]), True),
        (plan(steps=[{"entry": "e1", "conflict": {"fields": []}, "needsPerson": None}]), True),
        (plan(steps=[{"entry": "e1", "conflict": None, "needsPerson": "ui"}]), True),
    ],
)
def test_the_dialog_decides_only_what_needs_no_choice(found: dict[str, Any], wanted: bool) -> None:
    """U1: whatever needs a choice opens the whole plan."""
    assert needs_choice(found) is wanted


def test_only_fields_that_nobody_else_changed_are_offered_by_themselves() -> None:
    """G5, S3."""
    step = {"conflict": {"fields": [{"field": "nextStep"}]}}
    changed = {"effects": [{"changes": [{"field": "stage"}, {"field": "nextStep"}]}], "effect": None}
    assert untouched_fields(step, changed) == ["stage"]
    assert untouched_fields({"conflict": None}, changed) == []


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (None, "Yes, until"),
        ({"resource": "n://a", "exists": True}, "Yes, until"),
        ({"resource": "n://a", "failure": "list_tasks: timed out"}, "Perhaps not."),
    ],
)
def test_an_approval_says_why_it_asks_and_promises_no_way_back_from_a_state_nobody_could_read(
    snapshot: dict[str, Any] | None, said: str
) -> None:
    """P6, J4."""
    entry = {
        "id": "ent_1", "operation": "set_stage", "agent": "bot", "principal": "pete", "server": "crm", "tier": "high",
        "undo": {"kind": "compensate", "undoBy": "2026-08-01T12:00:00Z"}, "snapshot": snapshot, "arguments": {}, "kind": "call",
    }  # fmt: skip
    approval = {
        "id": "apr_1", "status": "denied", "why": ["the policy asks for <it>"], "decidedBy": None, "asked": [],
    }  # fmt: skip
    campaign = {"id": "cmp_1", "name": "Acme", "role": "member"}
    page = environment().get_template("approval.html").render(
        now=NOW, path="/", told=None, session=None, campaign=campaign, approval=approval, entry=entry, effects=[]
    )  # fmt: skip
    assert said in page
    assert ("list_tasks: timed out" in page) == (said == "Perhaps not.")
    assert "The policy asks for &lt;it&gt;." in page
