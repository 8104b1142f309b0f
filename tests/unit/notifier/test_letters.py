"""What people are told, in words (N1, N3, N7)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notifier.deliveries.backoff import next_wait, waits_of
from notifier.deliveries.letters import Item, News, compose, instant, one_line, plain, span

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
anything = st.text(max_size=20)
items = st.builds(
    Item,
    label=st.from_regex(r"e[1-9][0-9]?", fullmatch=True),
    what=anything,
    resource=st.none() | anything,
    undo_by=st.none() | st.integers(-(10**6), 10**6).map(lambda seconds: NOW + timedelta(seconds=seconds)),
    state=st.none() | st.just("taken back already"),
)
news = st.builds(
    News,
    about=st.sampled_from(["review.ready", "window.reminder", "window.escalation", "window.passed", "role.changed"]),
    who=anything,
    page=st.sampled_from(["/console/runs/run_1/review", "/console/runs/run_2/review"]),
    items=st.lists(items, max_size=3).map(tuple),
    detail=anything,
)


def reminder(label: str, minutes: int, page: str = "/console/runs/run_1/review") -> News:
    return News(
        "window.reminder", "ranger", page, (Item(label, "damage_creature", None, NOW + timedelta(minutes=minutes)),)
    )


def test_thirty_reminders_of_a_run_are_one_section_with_the_earliest_first() -> None:
    """N7: one digest rather than thirty mails."""
    letter = compose("Table", [reminder(f"e{n}", 100 - n) for n in range(1, 31)], "https://tb.example/", NOW)
    assert letter.subject == "Table: 30 calls of ranger can still be taken back for 1 h 10 min more"
    [section] = letter.sections
    assert section.lines[0].text == "e30 damage_creature"
    assert section.lines[0].when == "1 h 10 min left, until Mon 30 Nov 2026, 13:10 UTC"
    assert section.link == "https://tb.example/console/runs/run_1/review"


def test_news_of_two_runs_are_two_sections_and_the_more_pressing_one_names_the_letter() -> None:
    """N3."""
    letter = compose("Table", [reminder("e1", 90), reminder("e2", 5, "/console/runs/run_2/review")], "", NOW)
    assert [section.link for section in letter.sections] == ["/console/runs/run_2/review", "/console/runs/run_1/review"]
    assert letter.subject == "Table: 1 call of ranger can still be taken back for 5 min more, and 1 more thing"


def test_what_is_past_is_told_as_past() -> None:
    """N3: whoever reads late is not sent on an errand that cannot succeed."""
    letter = compose("Table", [reminder("e1", -5)], "", NOW)
    assert letter.subject == "Table: Nothing of ranger can be taken back any more"
    assert letter.sections[0].lines[0].when == "closed on Mon 30 Nov 2026, 11:55 UTC"


@settings(max_examples=40)
@given(st.lists(news, min_size=1, max_size=3))
def test_every_item_stands_in_its_letter_once_for_each_thing_that_is_told_of_it(told: list[News]) -> None:
    """N7."""
    letter = compose("Table", told, "https://tb.example", NOW)
    assert sum(len(section.lines) for section in letter.sections) <= sum(len(one.items) for one in told)
    for one in told:
        link = f"https://tb.example{one.page}"
        lines = {line.text for section in letter.sections if section.link == link for line in section.lines}
        for item in one.items:
            text = f"{one_line(item.label)} {one_line(item.what)}".strip()
            assert any(line.startswith(text) for line in lines)


@settings(max_examples=40)
@given(st.lists(news, min_size=1, max_size=3))
def test_no_text_of_a_campaign_breaks_out_of_its_line(told: list[News]) -> None:
    """N7: a subject is one line, so that nothing becomes a header, and a line in the text is one, so that nothing is forged."""
    letter = compose("Table", told, "", NOW)
    assert len(letter.subject) <= 140
    for text in (letter.subject, *(line.text for section in letter.sections for line in section.lines)):
        assert text == one_line(text, 10_000)
        assert not any(ord(char) < 32 or char in "\u202e\u2028\x7f" for char in text)


@given(st.text())
def test_one_line_is_one_line_whatever_comes(text: str) -> None:
    line = one_line(text)
    assert len(line) <= 200
    assert len(line.splitlines()) <= 1


@settings(max_examples=40)
@given(st.lists(news, min_size=1, max_size=3))
def test_a_chat_calls_nobody_by_what_a_campaign_wrote(told: list[News]) -> None:
    """N7."""
    text = plain(compose("Table", told, "", NOW))
    assert "@everyone" not in text
    assert "<!channel>" not in text
    assert all(text[at + 1] == "\u200b" for at, char in enumerate(text) if char == "@")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (5, "less than a minute"),
        (60, "1 min"),
        (7800, "2 h 10 min"),
        (7200, "2 h"),
        (90_000, "25 h"),
        (200_000, "2 days"),
    ],
)
def test_a_duration_reads_as_people_say_it(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_an_instant_is_told_in_utc() -> None:
    assert instant(NOW.astimezone()) == "Mon 30 Nov 2026, 12:00 UTC"


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=10),
    st.integers(1, 12),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1e5),
)
def test_a_wait_is_never_shorter_than_set_or_asked_for_and_the_tries_end(
    waits: list[float], attempts: int, chance: float, asked: float
) -> None:
    """N7: exponential back-off with jitter, then dead."""
    wait = next_wait(waits, attempts, chance, asked)
    if attempts > len(waits):
        assert wait is None
    else:
        assert wait is not None
        assert max(waits[attempts - 1], asked) <= wait <= max(waits[attempts - 1] * 1.25, asked)


def test_one_number_is_the_first_wait_and_doubles() -> None:
    """N7."""
    assert waits_of("5") == (5, 10, 20, 40, 80, 160, 320)
    assert waits_of("1, 2.5,60") == (1, 2.5, 60)


@pytest.mark.parametrize("setting", ["", "soon", "-1", "1,inf", "nan"])
def test_waits_that_are_none_are_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        waits_of(setting)
