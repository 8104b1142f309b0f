"""Resources and serial keys from templates and arguments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recorder.resources import LONGEST, resources_of, serial_key_of
from takeback.extension import Declared

DEAL = Declared(declared=True, resource="crm://acme/deal/{dealId}", uses=["crm://acme/owner/{owner}"])
values = st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.lists(st.integers(), max_size=2)


def test_a_template_names_the_record_that_the_arguments_say() -> None:
    """J8."""
    found = resources_of(DEAL, {"dealId": "D-881", "owner": 7})
    assert (found.changes, found.uses, found.unresolved) == ("crm://acme/deal/D-881", ("crm://acme/owner/7",), ())


def test_what_a_read_names_it_uses() -> None:
    """J12."""
    found = resources_of(DEAL.model_copy(update={"read_only": True}), {"dealId": "D-881", "owner": "o"})
    assert (found.changes, found.uses) == (None, ("crm://acme/deal/D-881", "crm://acme/owner/o"))


def test_an_argument_that_is_missing_leaves_its_template_unresolved_and_the_other_valid() -> None:
    """J11."""
    found = resources_of(DEAL, {"owner": "o"})
    assert (found.changes, found.uses) == (None, ("crm://acme/owner/o",))
    assert [item.field for item in found.unresolved] == ["resource"]


@given(st.dictionaries(st.sampled_from(["dealId", "owner", "x"]), values))
def test_no_arguments_can_raise_or_reach_another_path(arguments: dict[str, object]) -> None:
    found = resources_of(DEAL, arguments)
    if found.changes is not None:
        assert found.changes.startswith("crm://acme/deal/")
        assert "/" not in found.changes.removeprefix("crm://acme/deal/")
        assert len(found.changes) <= LONGEST


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_two_records_share_a_key_only_where_the_campaign_says_so(one: str, other: str) -> None:
    """J19."""
    assert serial_key_of("campaign", "c", "r", one) == serial_key_of("campaign", "c", "r2", other)
    same = serial_key_of("resource", "c", "r", one) == serial_key_of("resource", "c", "r", other)
    assert same == (one == other)
    assert serial_key_of("resource", "c", "r", None) == "c"
    assert serial_key_of("run", "c", "r", one) != serial_key_of("run", "c", "r2", one)
    assert serial_key_of("none", "c", "r", one) is None
