"""E4, J15, P2: an agent works a wiki that nobody here wrote, in a real browser, and it is taken back in the same browser."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="playwright is not installed: nothing drives a browser here")

from examples.browser import chromium, otter
from examples.browser.server import wiki_server
from examples.browser.wiki import Wiki
from examples.client import Answer, Caller, Refused
from examples.hosting import serving
from takeback.example import Installation
from takeback.ids import new_id
from tests.wiki_lab import Glass, Teammate


def _missing() -> str:
    try:
        chromium.chromium()
        otter.installed()
    except (chromium.NoChromium, otter.NoWiki) as missing:
        return str(missing)
    return ""


pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(_missing() != "", reason=_missing()),
]

OWNER, AGENT = "dana", "scribe"
PATIENCE_MS = 8_000
RELAXED = {f"wiki/{name}": "allow" for name in ("edit_page", "delete_page", "rename_page")}


@dataclass
class Office:
    """A campaign whose agent has a browser, and a teammate with another one."""

    campaign: str
    run: str
    owner: Caller
    agent: Caller
    teammate: Teammate
    glass: Glass
    wiki: Wiki

    async def relax(self, operations: dict[str, str]) -> None:
        await self.owner.put(f"/v1/campaigns/{self.campaign}/policy", {"operations": operations})

    async def ask(self, operation: str, **arguments: Any) -> Answer:
        """A call; what is answered at once."""
        called = await self.agent.call(self.run, f"wiki/{operation}", arguments)
        entry: Answer = called["entry"]
        return entry

    async def do(self, operation: str, **arguments: Any) -> Answer:
        """A call of an operation that the policy allows; its entry, which is in the journal."""
        entry = await self.ask(operation, summary="Tidied up", **arguments)
        entry = await self.owner.get(f"/v1/entries/{entry['id']}")
        assert entry["status"] == "committed", entry
        return entry

    async def plan(self, entry: Answer) -> Answer:
        """A plan for the entry, made anew where a screen was not read as quickly as a look at a record has to be."""
        for _ in range(5):
            plan = await self.owner.plan(self.campaign, entries=[entry["id"]])
            if not any("in time" in item["reason"] for item in plan["unresolved"]):
                break
        return plan

    async def take_back(self, entry: Answer) -> Answer:
        """Take one call back, picked by a person; its receipt."""
        plan = await self.plan(entry)
        done = await self.owner.decide_plan(plan, override=[entry["id"]], reason="unwanted")
        [receipt] = (await self.owner.record(done["id"]))["receipts"]
        return dict(receipt)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wiki_office(
    installation: Installation, empty_shared_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Office]:
    async with AsyncExitStack() as open_:
        folder = tmp_path_factory.mktemp("wiki")
        url = await open_.enter_async_context(otter.otter_wiki(folder))
        glass = Glass(url)
        open_.push_async_callback(glass.aclose)
        [shown] = await open_.enter_async_context(serving(glass.app))
        wiki = await open_.enter_async_context(chromium.browsing(shown, "Scribe", "scribe@acme.example", PATIENCE_MS))
        pool = await open_.enter_async_context(asyncpg.create_pool(empty_shared_database, min_size=1, max_size=6))
        [tools] = await open_.enter_async_context(serving(wiki_server(wiki, pool).http_app(secret=None)))
        owner = await open_.enter_async_context(
            Caller(installation.urls.http, OWNER, installation.token(OWNER, "human"))
        )
        agent = await open_.enter_async_context(
            Caller(installation.urls.http, AGENT, installation.token(AGENT, "agent"))
        )
        campaign = str((await owner.post("/v1/campaigns", {"name": f"Wiki {new_id('w')}"}))["id"])
        await owner.put(f"/v1/campaigns/{campaign}/servers/wiki", {"transport": "mcp", "url": f"{tools}/mcp"})
        await owner.put(
            f"/v1/campaigns/{campaign}/agents/{AGENT}", {"memory": "yes", "operations": [*RELAXED, "wiki/rename_site"]}
        )
        run = await agent.open_run(campaign, AGENT, model="m-1", principal=OWNER)
        teammate = await open_.enter_async_context(Teammate(url, folder / "pages"))
        yield Office(campaign, run, owner, agent, teammate, glass, wiki)


@pytest_asyncio.fixture(loop_scope="module")
async def office(wiki_office: Office) -> AsyncIterator[Office]:
    await wiki_office.relax(RELAXED)
    yield wiki_office
    wiki_office.glass.paint, wiki_office.glass.pretends = None, False
    wiki_office.wiki.patience_ms = PATIENCE_MS


async def test_a_call_through_a_screen_asks_until_the_policy_says_otherwise(office: Office) -> None:
    """P2: `via: ui` asks by default, per operation; what a person agreed to is typed and saved by the browser."""
    await office.relax({})
    asked = await office.ask("edit_page", page="agenda", text="# Agenda", summary="For Monday")
    assert asked["status"] == "awaiting_approval"
    assert office.teammate.text("agenda") is None
    await office.owner.decide_approval(asked["approval"], "approve")
    entry = await office.agent.settled(asked["id"])
    assert (entry["status"], office.teammate.text("agenda")) == ("committed", "# Agenda\n")
    assert entry["undo"]["via"] == "ui"
    assert entry["undo"].get("undoBy") is None
    await office.relax({"wiki/edit_page": "allow"})
    assert (await office.do("edit_page", page="agenda", text="# Agenda for Monday"))["approval"] is None


async def test_a_deleted_page_is_restored_by_the_wikis_own_revert_once_a_person_picks_it(office: Office) -> None:
    """E4, J15, G4: the plan says that it needs a person; unpicked nothing is clicked; restored as it was, byte for byte."""
    await office.teammate.write("handbook", "# Handbook\n\n- one\n  - two <b>\n")
    was = office.teammate.text("handbook")
    entry = await office.do("delete_page", page="handbook")
    assert entry["effect"]["before"]["fields"] == {"name": "Handbook", "text": was}
    plan = await office.plan(entry)
    assert [step["needsPerson"] for step in plan["steps"]] == ["ui"]
    done = await office.owner.decide_plan(plan, reason="unwanted")
    [receipt] = (await office.owner.record(done["id"]))["receipts"]
    assert receipt["outcome"] != "reverted"
    assert office.teammate.text("handbook") is None
    assert (await office.take_back(entry))["outcome"] == "reverted"
    assert office.teammate.text("handbook") == was


async def test_a_renamed_page_comes_back_under_its_name_and_nothing_else_moves(office: Office) -> None:
    """J15: two records of one call, one click; an edit of another page in between is no conflict."""
    await office.teammate.write("minutes", "We met.")
    entry = await office.do("rename_page", page="minutes", newName="protocol")
    assert office.teammate.text("minutes") is None
    await office.teammate.write("elsewhere", "Something else.")
    assert (await office.take_back(entry))["outcome"] == "reverted"
    assert [office.teammate.text(page) for page in ("minutes", "protocol")] == ["We met.\n", None]
    assert office.teammate.text("elsewhere") == "Something else.\n"


async def test_a_teammates_edit_is_a_conflict_and_survives(office: Office) -> None:
    """E4, G8: the page is read and compared before the click; even overridden, the wiki's own reverse loses no edit."""
    await office.teammate.write("prices", "Ten.")
    entry = await office.do("edit_page", page="prices", text="Twelve.")
    await office.teammate.write("prices", "Eleven.")
    changes = await office.teammate.changes()
    plan = await office.plan(entry)
    [step] = plan["steps"]
    assert step["conflict"]["fields"] == [{"field": "text", "was": "Ten.\n", "wrote": "Twelve.\n", "now": "Eleven.\n"}]
    receipt = await office.take_back(entry)
    assert (receipt["outcome"], "The wiki says: Error" in receipt["detail"]) == ("failed", True)
    assert office.teammate.text("prices") == "Eleven.\n"
    assert await office.teammate.changes() == changes


async def test_a_revert_that_the_wiki_only_claims_is_unverified(office: Office) -> None:
    """E4, G8: the page is read after the click; the wiki's word alone is not believed."""
    await office.teammate.write("claims", "True.")
    entry = await office.do("edit_page", page="claims", text="False.")
    office.glass.pretends = True
    receipt = await office.take_back(entry)
    assert receipt["outcome"] == "unverified"
    assert office.teammate.text("claims") == "False.\n"


async def test_a_moved_layout_fails_clearly_and_nothing_is_clicked(office: Office) -> None:
    """E4: a field or a button of another name is not the one; page and changelog stay as they are, for a call and an undo."""
    await office.teammate.write("layout", "Left.")
    office.wiki.patience_ms = 2_500  # what is missed never comes
    office.glass.paint = lambda html: html.replace("Commit Message", "What for")
    with pytest.raises(Refused, match="There is no field Commit Message") as refused:
        await office.ask("edit_page", page="layout", text="Right.", summary="Tidied up")
    assert refused.value.slug == "tool-failed"
    assert office.teammate.text("layout") == "Left.\n"
    office.glass.paint, office.wiki.patience_ms = None, PATIENCE_MS
    entry = await office.do("edit_page", page="layout", text="Right.")
    changes = await office.teammate.changes()
    office.wiki.patience_ms = 2_500
    office.glass.paint = lambda html: html.replace('value="Revert"', 'value="Delete for ever"')
    receipt = await office.take_back(entry)
    assert receipt["outcome"] == "failed"
    assert "There is no button Revert" in receipt["detail"]
    assert office.teammate.text("layout") == "Right.\n"
    assert await office.teammate.changes() == changes


async def test_what_the_wiki_cannot_give_back_is_said_before_and_after(office: Office) -> None:
    """E4, J15, P1: the wiki keeps no earlier preferences: `none`, asked before the call, listed in the plan."""
    asked = await office.ask("rename_site", name="The Bridge")
    assert asked["status"] == "awaiting_approval"
    await office.owner.decide_approval(asked["approval"], "approve")
    entry = await office.agent.settled(asked["id"])
    assert (entry["status"], entry["undo"]["kind"]) == ("committed", "none")
    plan = await office.plan(entry)
    assert plan["steps"] == []
    assert [(item["entry"], item["reason"]) for item in plan["notReversible"]] == [(entry["id"], "declared")]
