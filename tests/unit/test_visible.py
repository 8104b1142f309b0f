"""What people read holds nothing that they cannot see: names are refused for it, other people's text is spelled out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from notifier.console.desk import environment
from takeback.messages.campaign import LONGEST_SECONDS, CampaignRequest, Policy, RunRequest, out_of_bounds
from takeback.visible import unseen, visible


@pytest.mark.parametrize(
    "name",
    [
        "ann\u202e",
        "a\u200bnn",
        "ann\x00",
        "ann\n",
        "\u2066ann",
        "a\u200dnn",
        "an\ufeffn",
        "\u3164",
        "   ",
        "\u00a0",
        "a\ue000",
    ],
)
def test_a_name_with_what_nobody_sees_is_refused(name: str) -> None:
    """G7, U2: two people's names are told apart by looking."""
    with pytest.raises(ValidationError, match="a name"):
        CampaignRequest(name=name)
    with pytest.raises(ValidationError, match="a name"):
        RunRequest(agent="sales", model="m", principal=name)


@pytest.mark.parametrize(
    "name",
    ["Änne Müller", "ann@example.org", "\u0645\u06cc\u200c\u062e\u0648", "宮本", "👩\u200d👩\u200d👧", "a b", "O'Hara"],
)
def test_a_name_in_any_script_is_taken(name: str) -> None:
    """Joiners shape letters and pictures: there they belong."""
    assert CampaignRequest(name=name).name == name
    assert visible(name) == name


def test_other_peoples_text_is_spelled_out_and_lines_stay() -> None:
    assert visible("deal\u202ekcab\n\tx\u200b") == "deal\\u202ekcab\n\tx\\u200b"
    assert unseen("deal\u202e") == ["U+202E"]


@given(st.text())
def test_what_is_spelled_out_can_be_seen(text: str) -> None:
    told = visible(text)
    assert not unseen("".join(character for character in told if character not in "\n\t\r"))
    assert (told == text) == (not [point for point in unseen(text) if point not in ("U+000A", "U+0009", "U+000D")])


def test_every_page_spells_it_out() -> None:
    """U2: whatever template it stands in, as a value, an attribute or a document."""
    page = environment().from_string('<a title="{{ text }}">{{ text }}</a><pre>{{ {"x": text}|document }}</pre>')
    drawn = page.render(text="\u202e<b>")
    assert "\u202e" not in drawn
    assert drawn.count("\\u202e&lt;b&gt;") == 3


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({"minWindowSeconds": LONGEST_SECONDS + 1}, "minWindowSeconds"),
        (
            {"reminders": {"leadSeconds": 10**12, "escalateAfterSeconds": 60, "escalateTo": "bob"}},
            "reminders.leadSeconds",
        ),
        (
            {"reminders": {"leadSeconds": 60, "escalateAfterSeconds": 10**12, "escalateTo": "bob"}},
            "reminders.escalateAfterSeconds",
        ),
        (
            {"reminders": {"leadSeconds": 60, "escalateAfterSeconds": 60, "escalateTo": "bob\u202e"}},
            "reminders.escalateTo",
        ),
        ({"money": {"currency": "EUR", "period": "P11Y"}}, "money.period"),
        ({"money": {"currency": "EUR", "period": "PT0S"}}, "money.period"),
        ({"money": {"currency": "EUR", "period": "soon"}}, "money.period"),
        ({"money": {"currency": "EUR", "period": "9" * 400}}, "money.period"),
        ({"operations": {"x" * 500: "ask"}}, "operations"),
    ],
)
def test_a_policy_beyond_all_bounds_is_named_for_it(policy: dict[str, object], named: str) -> None:
    """P3, P5, N3: what the journal holds from before is still read."""
    (wrong,) = out_of_bounds(Policy.model_validate(policy))
    assert wrong.startswith(named)


@pytest.mark.parametrize("period", ["P1D", "P1W", "PT12H", "P3650D"])
def test_an_ordinary_policy_is_within_bounds(period: str) -> None:
    reminders = {"leadSeconds": 3600, "escalateAfterSeconds": 600, "escalateTo": "bob"}
    policy = {"minWindowSeconds": 60, "reminders": reminders, "money": {"currency": "EUR", "period": period}}
    assert out_of_bounds(Policy.model_validate({**policy, "operations": {"crm/set_stage": "ask"}})) == []
