"""The systems that a deal crosses, each alone: how it takes back what it did, or says that it cannot."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from examples.deal.calendar import calendar_server, posting_letters
from examples.deal.capacity import capacity_server
from examples.deal.company import Company, prepare
from examples.deal.crm import crm_application, crm_server
from examples.deal.forecast import forecast_server
from examples.deal.mail import mail_server
from examples.deal.memory import memory_server
from examples.deal.payments import payments_server
from examples.deal.post import Post, mail_sink
from examples.hosting import serving
from takeback.extension import EXTENSION
from takeback.toolserver import ToolServer
from tests.waiting import WAIT_SECONDS

DEAL, ORDER, ADDRESS = "D-881", "O-4711", "anna@globex.example"
TOKEN = "people-only"
SCHEMAS = ("crm", "calendar", "payments", "mail", "capacity", "memory")


class Systems:
    """The applications on one database, and what their people see."""

    def __init__(self, company: Company, servers: dict[str, ToolServer], crm_url: str) -> None:
        self.company = company
        self.servers = servers
        self.crm_url = crm_url
        self._keys = 0

    async def call(self, server: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """One call, as the recorder makes it; the whole MCP result."""
        self._keys += 1
        meta = {EXTENSION: {"idempotencyKey": f"ent_{self._keys}"}}
        answer = await self.servers[server].call(tool, arguments, meta)
        assert answer["isError"] is False, answer
        return answer

    async def declared(self, server: str, tool: str, **arguments: Any) -> dict[str, Any]:
        return (await self.call(server, tool, **arguments))["_meta"][EXTENSION]

    async def undo(self, server: str, offer: dict[str, Any], **how: Any) -> dict[str, Any]:
        self._keys += 1
        request = {"compensationToken": offer["compensationToken"], "ifVersion": offer["ifVersion"]}
        return await self.servers[server].undo({**request, "idempotencyKey": f"ent_{self._keys}", **how})


@pytest.fixture
async def systems(empty_shared_database: str, tmp_path: Path) -> AsyncIterator[Systems]:
    async with AsyncExitStack() as running:
        connection = await asyncpg.connect(empty_shared_database)
        await connection.execute(f"drop schema if exists {', '.join(SCHEMAS)} cascade")
        await prepare(connection)
        await connection.close()
        pools = {
            name: await running.enter_async_context(
                asyncpg.create_pool(
                    empty_shared_database, min_size=0, max_size=3, server_settings={"search_path": name}
                )
            )
            for name in SCHEMAS
        }
        mailbox = tmp_path / "mail"
        post = Post(await running.enter_async_context(mail_sink(mailbox)))
        await running.enter_async_context(posting_letters(pools["calendar"], post))
        [url] = await running.enter_async_context(serving(crm_application(pools["crm"], TOKEN)))
        people = await running.enter_async_context(
            httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=WAIT_SECONDS)
        )
        servers = [
            crm_server(pools["crm"]),
            calendar_server(pools["calendar"]),
            payments_server(pools["payments"]),
            mail_server(pools["mail"], post),
            capacity_server(pools["capacity"]),
            memory_server(pools["memory"]),
            forecast_server(pools["crm"], people),
        ]
        for server in servers:
            await server.prepare()
        company = await running.enter_async_context(Company(url, TOKEN, pools["crm"], mailbox))
        await company.enter_deal(DEAL, customer="Globex", stage="Proposal", amount="42000.00", currency="EUR")
        await company.enter_order(ORDER, "Globex", "300.00", "EUR")
        yield Systems(company, {server.name: server for server in servers}, url)


async def test_a_deals_stage_can_be_taken_back_for_seven_days(systems: Systems) -> None:
    """E2: a CRM stage (7 days), version-checked and verified."""
    declared = await systems.declared("crm", "update_deal", dealId=DEAL, stage="Won")
    window = datetime.fromisoformat(declared["undo"]["undoBy"]) - datetime.now().astimezone()
    assert timedelta(days=6, hours=23) < window <= timedelta(days=7)
    assert declared["effect"]["changes"] == [{"field": "stage", "old": "Proposal", "new": "Won"}]
    assert (await systems.undo("crm", declared["undo"]))["outcome"] == "reverted"
    assert (await systems.company.deal(DEAL))["stage"] == "Proposal"


async def test_a_teammates_edit_is_never_overwritten(systems: Systems) -> None:
    """G8: changed since means conflict, and nothing changed."""
    declared = await systems.declared("crm", "update_deal", dealId=DEAL, stage="Won", nextStep="kick-off")
    edited = await systems.company.edit_deal(DEAL, "teo", next_step="call legal")
    assert (await systems.undo("crm", declared["undo"]))["outcome"] == "conflict"
    assert (await systems.company.deal(DEAL))["version"] == edited["version"]


async def test_one_field_is_taken_back_and_what_a_person_typed_stays(systems: Systems) -> None:
    """S3: a notes object is taken back field by field."""
    declared = await systems.declared("crm", "update_notes", dealId=DEAL, summary="They signed.", wishes="A discount.")
    await systems.company.edit_deal(DEAL, "teo", notes={"wishes": "A discount, and training."})
    now = await systems.servers["crm"].observe({"resource": f"crm://acme/notes/{DEAL}"})
    answer = await systems.undo("crm", declared["undo"], ifVersion=now["version"], force=True, fields=["summary"])
    assert answer["outcome"] == "reverted"
    notes = (await systems.company.deal(DEAL))["notes"]
    assert notes == {"summary": "", "risks": "", "wishes": "A discount, and training."}


async def test_the_attendees_of_a_meeting_get_a_cancellation_notice(systems: Systems) -> None:
    """E2: a side effect of the undo, declared before and reported after, and really sent."""
    declared = await systems.declared(
        "calendar",
        "create_meeting",
        dealId=DEAL,
        title="Kick-off",
        startsAt="2030-01-07T09:00:00Z",
        attendees=[ADDRESS],
    )
    assert declared["undo"]["sideEffects"] == ["The attendees get a cancellation notice."]
    assert declared["effect"]["uses"] == [f"crm://acme/deal/{DEAL}"]
    await systems.company.delivered(ADDRESS, "Invitation: Kick-off")
    answer = await systems.undo("calendar", declared["undo"])
    assert answer["outcome"] == "reverted"
    assert f"{ADDRESS}: cancellation notice for Kick-off." in answer["sideEffects"]
    assert await systems.company.meetings(DEAL) == []
    letters = await systems.company.delivered(ADDRESS, "Cancelled: Kick-off")
    assert letters == ["Invitation: Kick-off", "Cancelled: Kick-off"]


async def test_an_e_mail_is_gone(systems: Systems) -> None:
    """E2, S10: really delivered, and declared as what nothing takes back."""
    declared = await systems.declared("mail", "send_mail", to=ADDRESS, subject="Welcome", body="Hello.")
    assert declared["undo"] == {"kind": "none"}
    assert await systems.company.delivered(ADDRESS, "Welcome") == ["Welcome"]


async def test_a_preview_shows_whom_an_e_mail_would_go_to_and_sends_nothing(systems: Systems) -> None:
    """S10: the recipients are seen before it is sent."""
    letter = {"to": ADDRESS, "subject": "Welcome", "body": "Hello."}
    found = await systems.servers["mail"].preview({"operation": "send_mail", "arguments": letter})
    assert {change["field"]: change["new"] for change in found["effect"]["changes"]} == letter
    with pytest.raises(TimeoutError):
        await systems.company.delivered(ADDRESS, "Welcome", seconds=0.05)


async def test_a_refund_can_be_taken_back_for_a_day(systems: Systems) -> None:
    """E2: a refund (1 day), its amount declared as money."""
    declared = await systems.declared(
        "payments", "refund", orderId=ORDER, amount="120.50", currency="EUR", reason="deposit"
    )
    window = datetime.fromisoformat(declared["undo"]["undoBy"]) - datetime.now().astimezone()
    assert timedelta(hours=23) < window <= timedelta(days=1)
    assert (await systems.company.order(ORDER))["refunded"] == "120.50"
    assert (await systems.undo("payments", declared["undo"]))["outcome"] == "reverted"
    assert (await systems.company.order(ORDER))["refunded"] == "0.00"


async def test_more_than_was_paid_is_never_paid_back(systems: Systems) -> None:
    answer = await systems.servers["payments"].call(
        "refund", {"orderId": ORDER, "amount": "300.01", "currency": "EUR", "reason": "greed"}
    )
    assert answer["isError"] is True
    assert (await systems.company.order(ORDER))["refunded"] == "0.00"


async def test_whoever_reads_a_deal_says_so(systems: Systems) -> None:
    """J12: the forecast, the booking and the recall name the deal in their uses."""
    deal = f"crm://acme/deal/{DEAL}"
    await systems.call("memory", "remember", topic="Globex", note="Globex signed.", sources=[deal])
    for server, tool, arguments in (
        ("forecast", "weigh_deals", {"dealIds": [DEAL]}),
        ("capacity", "book_team", {"dealId": DEAL, "team": "onboarding", "days": 3}),
        ("memory", "recall", {"topic": "Globex"}),
    ):
        declared = await systems.declared(server, tool, **arguments)
        assert deal in declared["effect"]["uses"]


async def test_the_crms_own_application_lets_only_its_people_in(systems: Systems) -> None:
    async with httpx.AsyncClient(base_url=systems.crm_url) as stranger:
        assert (await stranger.get(f"/deals/{DEAL}")).status_code == 401


async def test_an_example_server_refuses_whoever_is_not_the_recorder(systems: Systems) -> None:
    """J16: a direct call over MCP, without the recorder's secret or with a wrong one, reaches no tool."""
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "update_deal", "arguments": {"dealId": DEAL, "stage": "Lost"}},
    }
    headers = {"Accept": "application/json, text/event-stream"}
    async with serving(systems.servers["crm"].http_app(secret="the recorder's")) as [url], httpx.AsyncClient() as agent:
        for sent in ({}, {"Authorization": "Bearer guessed"}):
            answer = await agent.post(f"{url}/mcp", json=request, headers={**headers, **sent})
            assert answer.status_code == 401
            assert "Nothing was changed" in answer.text
    assert (await systems.company.deal(DEAL))["stage"] == "Proposal"
