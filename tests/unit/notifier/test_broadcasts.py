"""What everybody is told follows from what happened, and so do its ids (N5)."""

from hypothesis import assume, given
from hypothesis import strategies as st

from notifier.broadcasts import interaction_complete, interaction_reverted, of_person, of_tool
from takeback.messages.events import EVENT_DATA
from tests.unit.notifier.entries import NOW, histories


@given(histories(), st.data())
def test_an_interaction_is_complete_when_no_write_of_it_stands_or_may_stand(entries, data) -> None:
    """N5: reads and reversals do not count; a doubt does."""
    complete = interaction_complete((entry.kind, entry.status) for entry in entries)
    writes = [entry for entry in entries if entry.kind in ("call", "remedy", "correction")]
    stands = [e for e in writes if e.status not in ("reverted", "failed", "denied", "expired", "awaiting_approval")]
    assert complete == (not stands)


@given(histories(), st.data())
def test_taking_back_the_last_write_and_no_earlier_one_completes_an_interaction(entries, data) -> None:
    """N5: of several reversals exactly the last one says so."""
    writes = [entry for entry in entries if entry.kind == "call"]
    assume(writes)
    status = {entry.id: "committed" for entry in writes}
    told = []
    for entry in data.draw(st.permutations(writes)):
        status[entry.id] = "reverted"
        told.append(interaction_complete((one.kind, status[one.id]) for one in writes))
    assert told == [False] * (len(writes) - 1) + [True]


@given(histories())
def test_the_same_happening_has_the_same_id_and_another_one_another(entries) -> None:
    """N5: so a replay tells nothing anew."""
    told = [event for entry in entries for event in (*of_tool(entry, NOW), interaction_reverted(entry, True, NOW))]
    again = [event for entry in entries for event in (*of_tool(entry, NOW), interaction_reverted(entry, False, NOW))]
    assert [event.id for event in told] == [event.id for event in again]
    assert len({event.id for event in told}) == len(told)


@given(histories())
def test_each_announcement_is_as_its_schema_says(entries) -> None:
    """N6."""
    told = [of_person("cmp_1", "ann", {"say": "hi"}, "k", NOW)]
    told += [event for entry in entries for event in (*of_tool(entry, NOW), interaction_reverted(entry, True, NOW))]
    for event in told:
        model = EVENT_DATA[event.type.removeprefix("io.github.takeback.")]
        assert model.model_validate(event.data).wire() == event.data
        assert event.source == "/campaigns/cmp_1"
