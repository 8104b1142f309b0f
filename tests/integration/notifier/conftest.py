"""A game whose journal the notifier follows, told by a stand-in, and a laboratory to start notifiers in; new for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.notifier_lab import Lab, StandInJournal, Story


@pytest.fixture
async def journal(nats_url: str) -> AsyncIterator[StandInJournal]:
    async with StandInJournal.running(nats_url) as journal:
        yield journal


@pytest.fixture
async def story(journal: StandInJournal) -> Story:
    story = Story(journal)
    await story.begin(rogue="member", cleric="approver")
    return story


@pytest.fixture
def lab(postgres_url: str, nats_url: str, tmp_path: Path) -> Lab:
    return Lab(postgres_url, nats_url, tmp_path)
