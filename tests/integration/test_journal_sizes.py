"""What is too large for the journal, and what is so large that not much of it goes together."""

from __future__ import annotations

import pytest

from recorder.journal import JournalReader, NewRecord, Unit, Unwritable
from recorder.journal.unit import MAX_RECORD_BYTES
from takeback import json
from takeback.ids import new_id
from tests.integration.journal_units import journal_on, opened


def _of(size: int) -> Unit:
    body = json.dumps({"text": "x" * (size - len('{"text":""}'))})
    assert len(body) == size
    return Unit([NewRecord("run_1", "cmp_1", new_id("rec"), "interaction.started", body, published=True)])


async def test_a_record_that_could_not_go_out_as_an_event_is_refused_and_one_that_can_is_read_back(
    postgres_url: str,
) -> None:
    """J3: nothing of it is written, and the next one is."""
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        with pytest.raises(Unwritable) as refused:
            await journal.append(_of(MAX_RECORD_BYTES + 1))
        assert "Nothing was written" in str(refused.value)
        await journal.append(_of(MAX_RECORD_BYTES))
        assert [record.seq for record in await JournalReader(pool).records("run_1", 1)] == [2]


async def test_pages_of_records_are_cut_by_their_size(postgres_url: str) -> None:
    """J13: a page goes through the bus in one message; whoever reads on gets all of them, in order."""
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        for size in (100, MAX_RECORD_BYTES, 100, MAX_RECORD_BYTES // 2, MAX_RECORD_BYTES // 2, 100):
            await journal.append(_of(size))
        reader = JournalReader(pool)
        pages, after = [], 0
        while page := await reader.records("run_1", after):
            pages.append([record.seq for record in page])
            after = page[-1].seq
    assert [seq for page in pages for seq in page] == [1, 2, 3, 4, 5, 6, 7]
    assert pages == [[1, 2], [3], [4, 5], [6, 7]]
