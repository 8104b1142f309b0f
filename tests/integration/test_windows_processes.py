"""Two notifiers side by side, one killed in the middle of a thousand reminders (N3, N4, N7)."""

import re
import signal
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.integration.notifier_lab import Lab, StandInJournal, Story
from tests.integration.receivers import MailServer, text_of
from tests.processes import TakebackProcess
from tests.waiting import eventually

WINDOWS, PEOPLE = 1000, 20
IN_HAND = 8
"""How many letters one notifier sends at the same time."""
_LISTED = re.compile(r"^ +- (e\d+) ", re.MULTILINE)


async def test_a_thousand_windows_that_close_in_one_minute_are_each_reminded_of_once(
    postgres_url: str, nats_url: str, tmp_path: Path
) -> None:
    """Must hold: none missed, and none told in two letters; only a letter that was on its way comes twice, under its id."""
    lab = Lab(postgres_url, nats_url, tmp_path)
    lab.environ |= {
        "TAKEBACK_DELIVERY_DEADLINE_SECONDS": "5",
        "TAKEBACK_DELIVERY_POLL_SECONDS": "0.05",
        "TAKEBACK_SWEEP_SECONDS": "1",
    }
    async with MailServer.running() as mail, StandInJournal.running(nats_url) as journal:
        lab.environ |= {"TAKEBACK_SMTP_URL": mail.url}
        story = Story(journal)
        people = [f"person-{number}" for number in range(PEOPLE)]
        await story.begin(**dict.fromkeys(people, "member"))
        terms = {"leadSeconds": 3600, "escalateAfterSeconds": 3600, "escalateTo": "gm"}
        by = {"sub": "gm", "kind": "human"}
        await story.tell("policy.changed", {"campaign": story.campaign, "policy": {"reminders": terms}, "by": by})
        runs = [await _run(story, person) for person in people]
        for number in range(WINDOWS):
            person = number % PEOPLE
            await runs[person].call(publish=False, seconds=600 + number * 0.06, principal=people[person])
        views = [view for run in runs for view in run.entries.values()]
        serve = ("serve", "notifier", "--port", "0")
        async with TakebackProcess(*serve, environ=lab.environ) as first, TakebackProcess(*serve, environ=lab.environ):
            await eventually(lambda: len(mail.letters) >= 3)
            await first.end(signal.SIGKILL)
            while (known := len(_reminded(story))) < WINDOWS:
                await eventually(lambda known=known: len(_reminded(story)) > known, 40)
    assert Counter(data["entry"] for data in _reminded(story)) == Counter(view["id"] for view in views)
    letters: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for letter in mail.letters:
        labels = _LISTED.findall(text_of(letter))
        letters[letter["Message-ID"]].update((letter["To"], label) for label in labels)
    told = Counter(one for listed in letters.values() for one in listed)
    assert told == Counter((f"{view['principal']}@example.org", view["label"]) for view in views)
    repeats = Counter(letter["Message-ID"] for letter in mail.letters)
    assert sum(count - 1 for count in repeats.values()) <= IN_HAND


async def _run(story: Story, principal: str) -> Story:
    """Another run of the same campaign."""
    other = Story(story.journal, story.campaign)
    opened = {"campaign": story.campaign, "run": other.run, "agent": "ranger", "model": "m", "principal": principal}
    await story.journal.append(
        other.run, story.campaign, "run.opened", {**opened, "by": {"sub": "gm", "kind": "human"}}, publish=False
    )
    return other


def _reminded(story: Story) -> list[dict[str, Any]]:
    chain = story.journal.streams[story.campaign]
    return [event["data"] for event in chain if event["type"].endswith("window.reminded")]
