"""The SDK on a real PostgreSQL: records and calls observed, and calls previewed."""

import asyncio

import pytest

from takeback.toolserver.errors import UnknownTool
from tests.integration.toolserver.conftest import DEAL, Crm

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_record_is_observed_as_it_is_and_a_deleted_one_is_gone(crm: Crm) -> None:
    """G8."""
    seen = await crm.server.observe({"resource": DEAL})
    assert seen["exists"] is True and seen["fields"]["stage"] == "won"
    await crm.pool.execute("delete from deals")
    assert await crm.server.observe({"resource": DEAL}) == {"exists": False, "version": "absent", "fields": None}


async def test_a_resource_of_nobody_is_not_called_absent(crm: Crm) -> None:
    with pytest.raises(UnknownTool):
        await crm.server.observe({"resource": "crm://other/deal/1"})


async def test_a_call_that_never_came_can_never_come_any_more(crm: Crm) -> None:
    """J7."""
    assert (await crm.server.observe({"resource": DEAL, "entry": "e1"}))["call"] == {"outcome": "never"}
    late = await crm.call("update_deal", "e1", dealId="D-881", stage="lost")
    assert late["isError"] is True and "given up" in late["content"][0]["text"]
    assert await crm.stage() == "won"
    assert (await crm.server.observe({"entry": "e1"}))["call"] == {"outcome": "never"}


async def test_a_committed_call_is_observed_with_what_it_declared(crm: Crm) -> None:
    """J7."""
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    seen = (await crm.server.observe({"entry": "e1"}))["call"]
    assert seen["outcome"] == "committed" and seen["meta"] == declared


async def test_a_call_that_is_still_running_is_waited_for(crm: Crm) -> None:
    """J7: never while it may still commit."""
    async with crm.pool.acquire() as person, person.transaction():
        await person.execute("lock table runs in exclusive mode")
        call = asyncio.create_task(crm.call("update_deal", "e1", dealId="D-881", stage="lost"))
        await crm.blocked()
        look = asyncio.create_task(crm.server.observe({"entry": "e1"}))
        await crm.blocked(2)
    assert (await call)["isError"] is False
    assert (await look)["call"]["outcome"] == "committed"


async def test_a_preview_is_what_the_call_then_does_and_does_nothing_itself(crm: Crm) -> None:
    """P7."""
    shown = await crm.server.preview({"operation": "update_deal", "arguments": {"dealId": "D-881", "stage": "lost"}})
    assert await crm.stage() == "won"
    assert await crm.value("select count(*) from runs") == 0
    declared = await crm.done("update_deal", "e1", dealId="D-881", stage="lost")
    assert shown["effect"] == declared["effect"]


async def test_the_preview_of_a_mail_shows_the_recipient_and_sends_nothing(crm: Crm) -> None:
    """S10."""
    shown = await crm.server.preview({"operation": "send_mail", "arguments": {"to": "all", "subject": "s"}})
    assert {"field": "to", "old": None, "new": "all"} in shown["effect"]["changes"]
    assert await crm.value("select count(*) from mails") == 0
