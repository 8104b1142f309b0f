"""append_v1 beside a model of it: whatever steps come in whatever groups, it does what the model says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from unittest.mock import patch

import asyncpg
from hypothesis import example as case
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.journal import Appended, Fence, Journal, Refused, Unit
from recorder.journal.fsck import fsck
from recorder.journal.writer import GroupWriter
from takeback.ids import new_id
from tests.integration.journal_units import change, journal_on, opened


@dataclass
class Model:
    """What append_v1 must do, one unit at a time."""

    status: dict[str, str] = field(default_factory=dict)
    key_of: dict[str, str | None] = field(default_factory=dict)
    reverts: dict[str, str | None] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    seq: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)

    def append(self, step: Step) -> tuple[str, str] | tuple[int, int | None, int | None]:
        """The refusal, or (seq, label, fence)."""
        now = self.status.get(step.entry)
        if (step.expect is None) != (now is None) or (step.expect is not None and now not in step.expect):
            return "status-changed", now or "absent"
        claiming = ("pending", "in_doubt", "unverified", "committed")
        if step.reverts and step.status in claiming:
            for other, reverted in self.reverts.items():
                if other != step.entry and reverted == step.reverts and self.status[other] in claiming:
                    return "already-claimed", other
        if step.key and step.status == "pending":
            for other, key in self.key_of.items():
                if other != step.entry and key == step.key and self.status[other] == "pending":
                    return "writer-pending", other
        if step.key and step.fence is not None and self.fences.get(step.key, 0) != step.fence:
            return "fence-moved", str(self.fences.get(step.key, 0))
        run = self.run_of(step.entry)
        self.seq[run] = self.seq.get(run, 1) + 1
        label = None
        if now is None:
            label = self.labels[run] = self.labels.get(run, 0) + 1
            self.reverts[step.entry] = step.reverts
        self.status[step.entry] = step.status
        self.key_of[step.entry] = step.key
        if step.key:
            self.fences[step.key] = self.fences.get(step.key, 0) + 1
        return self.seq[run], label, self.fences[step.key] if step.key else None

    @staticmethod
    def run_of(entry: str) -> str:
        return f"run_{int(entry[-1]) % 2}"


@dataclass(frozen=True)
class Step:
    """One unit of the model test."""

    entry: str
    status: str
    expect: Sequence[str] | None
    key: str | None
    fence: int | None
    reverts: str | None


def steps() -> st.SearchStrategy[list[list[Step]]]:
    statuses = ("pending", "committed", "failed", "in_doubt", "reverting", "reverted", "unverified")
    step = st.integers(0, 5).flatmap(
        lambda number: st.builds(
            Step,
            entry=st.just(f"ent_{number}"),
            status=st.sampled_from(statuses),
            expect=st.none() | st.lists(st.sampled_from(statuses), min_size=3, max_size=6),
            key=st.sampled_from([None, "a", "b"]),
            fence=st.none() | st.integers(0, 2),
            reverts=st.just("ent_original" if number >= 3 else None),
        )
    )
    return st.lists(st.lists(step, min_size=1, max_size=6), min_size=1, max_size=8)


def _claims(entry: str, status: str, expect: Sequence[str] | None = None) -> Step:
    return Step(entry, status, expect, key=None, fence=None, reverts="ent_original")


ONE_CLAIM_ENDS_AS_ANOTHER_BEGINS = [
    [_claims("ent_5", "reverting"), _claims("ent_3", "unverified")],
    [_claims("ent_3", "reverting", ["unverified"]), _claims("ent_5", "in_doubt", ["reverting"])],
]
"""In one group: the index on claims met the second before the first had let go."""


def test_append_does_what_its_model_does(postgres_url: str) -> None:
    """J2, J19, G9: group by group, unit by unit, in the order of their arrival."""

    def named(step: Step, prefix: str) -> Unit:
        unit = change(
            step.status,  # type: ignore[arg-type]
            entry=f"{prefix}{step.entry}",
            run=f"{prefix}{Model.run_of(step.entry)}",
            expect=step.expect,  # type: ignore[arg-type]
            key=step.key and prefix + step.key,
            reverts=step.reverts and prefix + step.reverts,
        )
        return unit._replace(fence=Fence(prefix + step.key, step.fence) if step.key else None)

    def seen(answer: Appended | BaseException, prefix: str) -> tuple[object, ...]:
        if isinstance(answer, Refused):
            return answer.reason, answer.detail.removeprefix(prefix)
        assert isinstance(answer, Appended), answer
        return answer.records[0].seq, answer.records[0].label, answer.fence

    async def play(journal: Journal, groups: list[list[Step]]) -> None:
        model, prefix = Model(), new_id("x")
        await asyncio.gather(*(journal.append(opened(f"{prefix}run_{number}")) for number in (0, 1)))
        for group in groups:
            expected = [model.append(step) for step in group]
            units = [named(step, prefix) for step in group]
            answers = await asyncio.gather(*(journal.append(unit) for unit in units), return_exceptions=True)
            assert [seen(answer, prefix) for answer in answers] == expected

    async def whole(pool: asyncpg.Pool) -> list[str]:
        return [str(difference) async for difference in fsck(pool)]

    # A group that the database refuses would be written unit by unit, and look right: that must not be what happens.
    with asyncio.Runner() as runner, patch.object(GroupWriter, "_each_alone", side_effect=AssertionError):
        opening = journal_on(postgres_url)
        journal, pool = runner.run(_enter(opening))

        @given(groups=steps())
        @case(groups=ONE_CLAIM_ENDS_AS_ANOTHER_BEGINS)
        @settings(max_examples=60, deadline=None)
        def example(groups: list[list[Step]]) -> None:
            runner.run(play(journal, groups))

        example()
        assert runner.run(whole(pool)) == []
        runner.run(_leave(opening))


async def _enter(context: AbstractAsyncContextManager[tuple[Journal, asyncpg.Pool]]) -> tuple[Journal, asyncpg.Pool]:
    return await context.__aenter__()


async def _leave(context: AbstractAsyncContextManager[tuple[Journal, asyncpg.Pool]]) -> None:
    await context.__aexit__(None, None, None)
