"""What stands in a plan, and where (G3, G4, G5, G6, G11)."""

from datetime import timedelta

from planner.conflicts import Observed
from planner.plan import moved_past, needs_choice
from takeback.messages.entry import Undo, Unresolved
from takeback.messages.events import HostLinks
from tests.unit.planner.world import NOW, entry_id, fact, planned, steps

TRUSTED = HostLinks(replaces_default=True)
DEAL, NOTE = "crm://deal/1", "crm://note/1"


def moved(fields: dict[str, object], version: str = "v99") -> dict[tuple[str, str], Observed]:
    return {("crm", DEAL): Observed(DEAL, version=version, fields=fields)}


def test_taking_back_a_turn_takes_back_what_later_turns_built_on_it() -> None:
    """G3."""
    facts = [fact(n, resource=f"crm://deal/{n}", interaction=f"i{n}") for n in (1, 2, 3)]
    plan = planned(facts, [entry_id(2)])
    assert steps(plan) == ["e3", "e2"]
    assert needs_choice(plan, [entry_id(2)]) == ["later turns built on this one and would be taken back too"]


def test_a_read_passes_dependence_on_and_stands_in_no_section() -> None:
    """G4, J12."""
    first = fact(1, resource=DEAL)
    read = fact(2, kind="read", uses=[DEAL])
    third = fact(3, resource=NOTE, host=HostLinks(depends_on=[read.id], replaces_default=True))
    plan = planned([first, read, third], [first.id])
    assert steps(plan) == ["e3", "e1"]
    assert [(reason.entry, reason.source) for reason in plan.steps[0].because] == [(first.id, "host")]
    assert read.id not in {item.entry for section in (plan.not_reversible, plan.unresolved) for item in section}


def test_each_kind_of_entry_stands_in_its_section() -> None:
    """G4, J9, J11: declared, closed, unknown and failed are told apart, and unresolved is none of them."""
    targets = [
        fact(1, undo=Undo(kind="none"), resource=DEAL, host=TRUSTED),
        fact(2, undo=Undo(kind="unknown"), host=TRUSTED),
        fact(3, undo=Undo(kind="compensate", if_version="v3", undo_by=NOW), resource="crm://a", host=TRUSTED),
        fact(4, status="denied"),
        fact(5, status="pending", host=TRUSTED),
        fact(6, status="in_doubt", host=TRUSTED),
        fact(7, status="reverting", host=TRUSTED),
        fact(8, unresolved=[Unresolved(field="undo.undoBy", reason="no date")], host=TRUSTED),
        fact(9, resource="crm://b", host=TRUSTED),
        fact(10, resource="crm://c", status="reverted", host=TRUSTED),
    ]
    plan = planned(targets, [one.id for one in targets])
    assert {(item.entry, item.reason) for item in plan.not_reversible} == {
        (entry_id(1), "declared"),
        (entry_id(2), "unknown"),
        (entry_id(3), "window_closed"),
        (entry_id(4), "failed"),
    }
    assert {item.entry for item in plan.unresolved} == {entry_id(n) for n in (5, 6, 7, 8)}
    assert {step.entry for step in plan.steps} == {entry_id(9), entry_id(10)}


def test_a_window_closes_at_its_instant() -> None:
    """G4: as of the database time that the plan was made at."""
    one = fact(1, resource=DEAL, undo=Undo(kind="compensate", if_version="v1", undo_by=NOW))
    assert steps(planned([one], [one.id], now=NOW - timedelta(microseconds=1))) == ["e1"]
    assert planned([one], [one.id], now=NOW).not_reversible[0].reason == "window_closed"


def test_a_reverted_dependent_is_left_away_with_its_reversal() -> None:
    """G4: a reverted entry and its reversal cancel out of closures."""
    first = fact(1, resource=DEAL)
    second = fact(2, resource=DEAL, old="set by 1", status="reverted")
    back = fact(3, resource=DEAL, kind="reversal", old="set by 2", new="set by 1", reverts=second.id)
    plan = planned([first, second, back], [first.id])
    assert steps(plan) == ["e1"]
    assert plan.steps[0].if_version == "v3" == plan.steps[0].observed_version
    assert plan.steps[0].conflict is None


def test_a_reversal_of_what_was_there_before_the_step_is_news_to_it() -> None:
    """G8: e1 was taken back from under e2, so the record no longer stands as e2 left it."""
    first = fact(1, resource=DEAL, status="reverted")
    second = fact(2, resource=DEAL, old="set by 1")
    back = fact(3, resource=DEAL, kind="reversal", old="set by 2", new="before", reverts=first.id)
    (step,) = planned([first, second, back], [second.id]).steps
    assert (step.if_version, step.observed_version) == ("v2", "v3")
    assert step.conflict is not None


def test_without_declarations_each_step_names_the_nearest_that_it_builds_on() -> None:
    """G4: nothing is told twice, so a long run's plan stays short."""
    facts = [fact(n, resource=f"crm://deal/{n}") for n in range(1, 5)]
    plan = planned(facts, [entry_id(1)])
    told = {step.label: [reason.entry for reason in step.because] for step in plan.steps}
    assert told == {"e4": [entry_id(3)], "e3": [entry_id(2)], "e2": [entry_id(1)], "e1": [entry_id(1)]}


def test_a_nearer_entry_that_is_no_step_hides_nothing_behind_it() -> None:
    """G8: e3 must still go before e1, though the mail between them stays."""
    facts = [fact(1, resource=DEAL), fact(2, undo=Undo(kind="none")), fact(3, resource=NOTE)]
    (last, _) = planned(facts, [entry_id(1)]).steps
    assert [reason.entry for reason in last.because] == [entry_id(2), entry_id(1)]


def test_a_reversal_can_be_taken_back_itself() -> None:
    """S12: it is an entry like any other."""
    first = fact(1, resource=DEAL, status="reverted")
    back = fact(2, resource=DEAL, kind="reversal", reverts=first.id)
    assert steps(planned([first, back], [back.id])) == ["e2"]


def test_later_changes_of_the_same_plan_are_no_conflict() -> None:
    """S11, S4: a chain of edits to one record is taken back from its end, each step expecting the one before it."""
    chain = [fact(n, resource=DEAL, old=f"set by {n - 1}") for n in (1, 2, 3)]
    plan = planned(chain, [entry_id(1)])
    assert steps(plan) == ["e3", "e2", "e1"]
    assert [step.conflict for step in plan.steps] == [None, None, None]
    assert [step.expects for step in plan.steps] == [None, entry_id(3), entry_id(2)]


def test_what_somebody_else_changed_is_a_conflict_field_by_field() -> None:
    """G4, S3: was, wrote, now; only the fields that differ."""
    one = fact(1, resource=DEAL, changes={"stage": ("open", "won"), "amount": (1, 2)})
    plan = planned([one], [one.id], observed=moved({"stage": "lost", "amount": 2}))
    assert plan.steps[0].conflict is not None
    assert [field.wire() for field in plan.steps[0].conflict.fields] == [
        {"field": "stage", "was": "open", "wrote": "won", "now": "lost"}
    ]
    assert plan.consequences[0].if_overridden == [
        'stage: "lost", set by somebody outside the journal, is lost; "open" is put back over it.'
    ]
    assert plan.consequences[0].if_left_out == [
        'crm://deal/1 keeps what e1 (crm/set) wrote: amount = 2; and what was changed since: stage = "lost".'
    ]
    everything = planned([one], [one.id], observed=moved({"stage": "lost", "amount": 7}))
    assert everything.consequences[0].if_left_out == [
        'crm://deal/1 stays as it was changed since: stage = "lost", amount = 7.'
    ]


def test_a_record_changed_in_other_fields_only_is_still_a_conflict() -> None:
    """G8: the version moved, so the tool server will refuse; no field of the call differs."""
    one = fact(1, resource=DEAL)
    plan = planned([one], [one.id], observed=moved({"value": "set by 1", "owner": "anna"}))
    assert plan.steps[0].conflict is not None
    assert plan.steps[0].conflict.fields == []


def test_the_override_names_whose_value_is_lost() -> None:
    """G5: the author is in the journal where the change was made through it."""
    one = fact(1, resource=DEAL)
    other = fact(1, run="run_b", resource=DEAL, old="set by 1", new="theirs", principal="anna", minutes=9)
    plan = planned([one], [one.id], observed=moved({"value": "theirs"}), related=[other])
    assert "e1 (crm/set) of run run_b for anna" in plan.consequences[0].if_overridden[0]


def test_an_effect_without_a_version_needs_a_person() -> None:
    """J10, P2."""
    blind = fact(1, resource=DEAL, version=None)
    screen = fact(2, resource=NOTE, host=TRUSTED, undo=Undo(kind="compensate", via="ui", if_version="v2"))
    plan = planned([blind, screen], [blind.id, screen.id])
    assert [step.needs_person for step in plan.steps] == ["ui", "no_version"]


def test_entries_of_other_runs_are_readers_and_no_steps() -> None:
    """G3: through what they said they used, or through an argument that equals a result."""
    one = fact(1, resource=DEAL, results=["h"])
    used = fact(1, run="run_b", resource="crm://forecast", uses=[DEAL], minutes=5, agent="forecast")
    matched = fact(1, run="run_c", resource="crm://capacity", arguments=["h"], minutes=6, agent="capacity")
    earlier = fact(1, run="run_d", uses=[DEAL], minutes=0.5)
    plan = planned([one], [one.id], related=[used, matched, earlier])
    assert steps(plan) == ["e1"]
    assert [(item.run, item.resource, item.through) for item in plan.read_since] == [
        ("run_b", DEAL, "uses"),
        ("run_c", DEAL, "arguments"),
    ]
    assert [(item.kind, item.entry) for item in plan.suggestions] == [
        ("correction", used.id),
        ("correction", matched.id),
    ]


def test_an_entry_of_another_run_is_a_step_only_as_a_target() -> None:
    """G3."""
    one, other = fact(1, resource=DEAL), fact(1, run="run_b", resource=NOTE, uses=[DEAL], minutes=5)
    plan = planned([one, other], [one.id, other.id])
    assert [step.entry for step in plan.steps] == [other.id, one.id]
    assert plan.read_since == []


def test_agents_with_a_memory_elsewhere_are_blind_spots() -> None:
    """G4: yes, no, and unknown unless somebody said."""
    one = fact(1, resource=DEAL)
    plan = planned([one], [one.id], active_agents={"seller": "unknown", "scout": "no", "crm-bot": "yes"})
    assert [(item.agent, item.through_recorder) for item in plan.read_since_incomplete] == [
        ("scout", "no"),
        ("seller", "unknown"),
    ]


def test_what_is_not_reversible_gets_a_suggested_remedy() -> None:
    """G4, J14, S10."""
    mail = fact(1, undo=Undo(kind="none"))
    plan = planned([mail], [mail.id])
    assert [(item.kind, item.entry) for item in plan.suggestions] == [("remedy", mail.id)]


def test_side_effects_are_those_of_the_steps() -> None:
    """G4."""
    meeting = fact(
        1, resource=NOTE, undo=Undo(kind="compensate", if_version="v1", side_effects=["Attendees are told."])
    )
    assert [(item.entry, item.text) for item in planned([meeting], [meeting.id]).side_effects] == [
        (meeting.id, "Attendees are told.")
    ]


def test_leaving_a_step_out_says_what_follows() -> None:
    """G5: what stays, what it stood on, and who meets it."""
    first, second = fact(1, resource=DEAL), fact(2, resource=DEAL, old="set by 1")
    plan = planned([first, second], [first.id])
    left_out = plan.consequences[0].if_left_out
    assert left_out[0] == 'crm://deal/1 keeps what e2 (crm/set) wrote: value = "set by 2".'
    assert "e1 (crm/set) [default]" in left_out[1]
    assert "e1 (crm/set) changed the same record before it" in left_out[2]


def test_readers_and_time_leave_the_digest_alone_and_the_world_moves_it() -> None:
    """G6."""
    one = fact(1, resource=DEAL)
    plan = planned([one], [one.id])
    reader = fact(1, run="run_b", uses=[DEAL], minutes=5)
    assert planned([one], [one.id], related=[reader], now=NOW + timedelta(hours=1)).digest == plan.digest
    assert planned([one], [one.id], observed=moved({"value": "set by 1"})).digest != plan.digest
    assert planned([one, fact(2, resource=NOTE)], [one.id]).digest != plan.digest


def test_a_plan_whose_entries_another_plan_took_back_is_not_past() -> None:
    """G9: the second of two approvals hears already_reverted, not plan-stale; a new dependent makes it stale all the same."""
    one = fact(1, resource=DEAL)
    plan = planned([one], [one.id])
    back = planned([fact(1, resource=DEAL, status="reverted")], [one.id])
    assert not moved_past(plan, back, {one.id})
    assert moved_past(plan, back, set())
    more = planned([one, fact(2, resource=NOTE)], [one.id])
    assert moved_past(plan, more, {one.id})


def test_a_failed_call_in_a_turn_needs_no_choice() -> None:
    """Contract: notReversible other than `failed` does."""
    one, failed = fact(1, resource=DEAL), fact(2, status="failed")
    plan = planned([one, failed], [one.id, failed.id])
    assert needs_choice(plan, [one.id, failed.id]) == []
