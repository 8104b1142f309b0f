"""Where links come from, and that each source alone changes a plan (G1, G2)."""

from planner.links import Confirmation, entry_of_link
from takeback.messages.entry import Unresolved
from takeback.messages.events import HostLinks
from tests.unit.planner.world import START, entry_id, fact, links_of, planned, steps

TRUSTED = HostLinks(replaces_default=True)
DEAL, FORECAST, NOTE = "crm://deal/1", "crm://forecast/1", "crm://note/1"


def test_without_a_declaration_an_entry_may_depend_on_all_before_it() -> None:
    """G2: the default link alone brings a later entry into the plan."""
    first, second = fact(1, resource=DEAL), fact(2, resource=NOTE)
    assert steps(planned([first, second], [first.id])) == ["e2", "e1"]
    independent = fact(2, resource=NOTE, host=TRUSTED)
    assert steps(planned([first, independent], [first.id])) == ["e1"]


def test_a_declared_use_alone_brings_an_entry_into_the_plan() -> None:
    """G1: what the tool server says it read replaces the default and is a link to who wrote it."""
    first = fact(1, resource=DEAL)
    assert steps(planned([first, fact(2, resource=NOTE, uses=[DEAL])], [first.id])) == ["e2", "e1"]
    assert steps(planned([first, fact(2, resource=NOTE, uses=[FORECAST])], [first.id])) == ["e1"]


def test_a_use_that_the_host_names_alone_brings_an_entry_into_the_plan() -> None:
    """G1: host links, by record and by entry, from a service that replaces the default."""
    first = fact(1, resource=DEAL)
    by_record = fact(2, resource=NOTE, host=HostLinks(uses=[DEAL], replaces_default=True))
    by_entry = fact(2, resource=NOTE, host=HostLinks(depends_on=[first.id], replaces_default=True))
    for second in (by_record, by_entry):
        plan = planned([first, second], [first.id])
        assert steps(plan) == ["e2", "e1"]
        assert [(reason.entry, reason.source) for reason in plan.steps[0].because] == [(first.id, "host")]


def test_an_equal_value_alone_brings_an_entry_into_the_plan() -> None:
    """G1: inferred, where nothing else links the two."""
    first = fact(1, resource=DEAL, results=["hash-of-D-881"])
    second = fact(2, resource=NOTE, host=TRUSTED, arguments=["hash-of-D-881"])
    plan = planned([first, second], [first.id])
    assert steps(plan) == ["e2", "e1"]
    assert plan.steps[0].because[0].source == "inferred"


def test_equal_small_values_link_nothing() -> None:
    """G1: the recorder hashes no small values, so nothing matches; the same argument twice is no result that was used."""
    first = fact(1, resource=DEAL, arguments=["hash-of-campaign-name"])
    second = fact(2, resource=NOTE, host=TRUSTED, arguments=["hash-of-campaign-name"])
    assert steps(planned([first, second], [first.id])) == ["e1"]


def test_an_inferred_link_never_replaces_the_default() -> None:
    """G2: an entry that matches e2 still may depend on e1."""
    first, second = fact(1, resource=DEAL), fact(2, resource=NOTE, results=["h"], host=TRUSTED)
    third = fact(3, resource=FORECAST, arguments=["h"])
    sources = {(link.depends_on, link.source) for link in links_of([first, second, third]) if link.entry == third.id}
    assert sources == {(first.id, "default"), (second.id, "default"), (second.id, "inferred")}


def test_what_an_agent_says_only_adds_to_the_default() -> None:
    """G1: `uses` from an agent's token does not replace the default."""
    first, second = fact(1, resource=DEAL), fact(2, resource=NOTE)
    third = fact(3, resource=FORECAST, host=HostLinks(uses=[NOTE]))
    sources = {(link.depends_on, link.source) for link in links_of([first, second, third]) if link.entry == third.id}
    assert sources == {(first.id, "default"), (second.id, "default"), (second.id, "host")}


def test_a_confirmed_link_alone_changes_the_plan() -> None:
    """G1, G2, J11: who confirmed it and when is on the link; from then on it blocks where a guess did not."""
    broken = fact(1, resource=DEAL, unresolved=[Unresolved(field="undo.kind", reason="not in the vocabulary")])
    second = fact(2, resource=NOTE)
    (guess,) = links_of([broken, second])
    word = Confirmation(guess.id, guess.entry, guess.depends_on, "anna", START)
    (link,) = links_of([broken, second], [word])
    assert (link.source, link.confirmed_by, link.confirmed_at, link.id) == ("confirmed", "anna", START, guess.id)
    before, after = planned([broken, second], [broken.id]), planned([broken, second], [broken.id], confirmations=[word])
    assert before.digest != after.digest
    assert after.steps[0].because[0].source == "confirmed"
    assert any("blocked" in text for text in after.consequences[0].if_left_out)
    assert not any("blocked" in text for text in before.consequences[0].if_left_out)


def test_two_writers_of_one_record_stay_linked_whatever_the_later_one_read() -> None:
    """S4: a declaration replaces the default except between writers of one record."""
    first, second = fact(1, resource=DEAL), fact(2, resource=DEAL, uses=[FORECAST])
    assert steps(planned([first, second], [first.id])) == ["e2", "e1"]


def test_what_never_happened_is_linked_to_nothing() -> None:
    """G11: nothing can have been built on a call that reached no tool."""
    for status in ("denied", "failed", "expired", "awaiting_approval"):
        first = fact(1, resource=DEAL, status=status)
        assert links_of([first, fact(2, resource=NOTE)]) == []


def test_a_link_id_names_the_later_entry() -> None:
    """So that a confirmation finds the run of its link."""
    (link,) = links_of([fact(1, resource=DEAL), fact(2, resource=NOTE)])
    assert entry_of_link(link.id) == entry_id(2)
    assert entry_of_link("nonsense") is None
