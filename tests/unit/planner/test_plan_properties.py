"""What holds for every plan, whatever happened before (G4, G6, G11)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.conflicts import Observed
from planner.fact import Fact
from planner.graph import TARGET, safe_order
from takeback.messages.entry import Undo, Unresolved
from takeback.messages.events import HostLinks
from takeback.messages.plan import Plan
from tests.unit.planner.world import NOW, closed, entry_id, fact, links_of, planned

RECORDS = ["crm://a", "crm://b", "crm://c"]
UNDO = {
    "compensate": Undo(kind="compensate", if_version="v"),
    "closed": Undo(kind="compensate", if_version="v", undo_by=NOW),
    "none": Undo(kind="none"),
    "unknown": Undo(kind="unknown"),
}


@st.composite
def runs(draw: st.DrawFn) -> list[Fact]:
    """Up to two runs of calls and reads with links of every source, in every status."""
    facts: list[Fact] = []
    for run in draw(st.sampled_from([["run_a"], ["run_a", "run_b"]])):
        for number in range(1, draw(st.integers(1, 7)) + 1):
            read = draw(st.booleans()) and draw(st.booleans())
            reverts = draw(st.sampled_from([None, None, None, *([entry_id(number - 1, run)] if number > 1 else [])]))
            facts.append(
                fact(
                    number,
                    run=run,
                    resource=draw(st.sampled_from([None, *RECORDS])),
                    kind="read" if read else "reversal" if reverts else "call",
                    reverts=reverts,
                    uses=draw(st.lists(st.sampled_from(RECORDS), max_size=1)),
                    host=HostLinks(
                        depends_on=[entry_id(n, run) for n in range(1, number) if draw(st.booleans())],
                        replaces_default=draw(st.booleans()),
                    ),
                    arguments=draw(st.lists(st.sampled_from(["h1", "h2"]), max_size=1)),
                    results=draw(st.lists(st.sampled_from(["h1", "h2"]), max_size=1)),
                    status=draw(
                        st.sampled_from(
                            ["committed"] * 6 + ["reverted", "failed", "denied", "pending", "in_doubt", "reverting"]
                        )
                    ),
                    undo=UNDO[draw(st.sampled_from(["compensate"] * 4 + list(UNDO)))],
                    unresolved=[Unresolved(field="undo", reason="bad")] if draw(st.integers(0, 9)) == 0 else [],
                    minutes=draw(st.integers(0, 3)) + number,
                )
            )
    return facts


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Fact], list[str], Plan]:
    facts = draw(runs())
    targets = draw(st.lists(st.sampled_from([one.id for one in facts]), min_size=1, unique=True))
    observed = {
        ("crm", record): Observed(record, exists=draw(st.booleans()), version=draw(st.sampled_from(["v1", "v9", None])))
        for record in draw(st.lists(st.sampled_from(RECORDS), unique=True))
    }
    return facts, targets, planned(facts, targets, observed=observed)


@settings(max_examples=60)
@given(worlds())
def test_every_target_and_dependent_stands_in_exactly_one_section(world: tuple[list[Fact], list[str], Plan]) -> None:
    """G4."""
    facts, targets, plan = world
    placed = [item.entry for section in (plan.steps, plan.not_reversible, plan.unresolved) for item in section]
    assert len(placed) == len(set(placed))
    reads = {one.id for one in facts if one.is_read}
    assert set(placed) == {one.id for one in closed(facts, targets).members}
    assert set(targets) - reads == set(plan.targets) <= set(placed)
    assert not reads & set(placed)


@settings(max_examples=60)
@given(worlds())
def test_every_step_stands_before_what_it_builds_on(world: tuple[list[Fact], list[str], Plan]) -> None:
    """G4: a safe order, within a run strictly later first."""
    facts, _, plan = world
    known = {one.id: one for one in facts}
    order = [step.entry for step in plan.steps]
    for place, step in enumerate(plan.steps):
        for reason in step.because:
            if reason.source != TARGET and reason.entry in order:
                assert order.index(reason.entry) > place
        if step.expects is not None:
            assert order.index(step.expects) < place
        for later in order[place + 1 :]:
            if known[later].entry.run == known[step.entry].entry.run:
                assert known[later].seq < known[step.entry].seq


@settings(max_examples=60)
@given(worlds())
def test_nothing_in_a_plan_contradicts_another_part_of_it(world: tuple[list[Fact], list[str], Plan]) -> None:
    """G11."""
    facts, _, plan = world
    steps = {step.entry for step in plan.steps}
    placed = steps | {item.entry for item in [*plan.not_reversible, *plan.unresolved]}
    assert {item.entry for item in plan.consequences} <= steps
    assert {item.entry for item in plan.side_effects} <= steps
    assert not {item.entry for item in plan.read_since} & placed
    assert {reason.entry for step in plan.steps for reason in step.because} <= placed
    assert {item.entry for item in plan.suggestions} <= {
        *(item.entry for item in plan.read_since),
        *(item.entry for item in plan.not_reversible),
    }
    reverted = {one.id for one in facts if one.entry.status == "reverted"}
    assert reverted & placed <= set(plan.targets)
    for step in plan.steps:
        if step.entry in reverted:
            assert (step.conflict, step.needs_person, step.expects) == (None, None, None)
    for consequence in plan.consequences:
        step = next(step for step in plan.steps if step.entry == consequence.entry)
        lost = [text for text in consequence.if_overridden if "is lost" in text]
        assert len(lost) == (len(step.conflict.fields) if step.conflict is not None else 0)


@settings(max_examples=40)
@given(runs(), st.randoms(use_true_random=False))
def test_the_order_in_which_entries_are_read_changes_nothing(facts: list[Fact], random: object) -> None:
    """G6: the digest is the same for the same world, and so is every other part."""
    shuffled = list(facts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    targets = [one.id for one in facts[:2]]
    assert planned(facts, targets) == planned(shuffled, targets)
    assert links_of(facts) == links_of(shuffled)
    assert safe_order(facts) == safe_order(shuffled)


@settings(max_examples=40)
@given(runs())
def test_a_link_leads_to_an_earlier_entry_of_the_same_run(facts: list[Fact]) -> None:
    """G1, G3."""
    known = {one.id: one for one in facts}
    for run in {one.entry.run for one in facts}:
        for link in links_of(one for one in facts if one.entry.run == run):
            later, earlier = known[link.entry], known[link.depends_on]
            assert later.entry.run == earlier.entry.run
            assert later.seq > earlier.seq
