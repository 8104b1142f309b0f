"""Planner and recorder together on real servers: from a call to its taking back, and the journal read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

import planner.app
import recorder.app
from planner.rebuild import rebuild
from takeback import bus
from takeback.auth import Kind
from takeback.database import driver_url, service_url
from takeback.edge import Edge
from tests.crm_server import ROWS, SCHEMA, build
from tests.integration.test_planner import dumped
from tests.recorder_lab import Client, lab_environ
from tests.servers import NatsServer

DEAL = "crm://acme/deal/D-881"


@dataclass
class Desk:
    """A campaign with the CRM behind the recorder: olga owns it, paul and rita are members, `bot` works for both."""

    client: Client
    crm: asyncpg.Pool
    environ: dict[str, str]
    campaign: str = ""

    async def ok(self, method: str, path: str, body: Any = None, *, sub: str = "olga", kind: Kind = "human") -> Any:
        return await self.client.ok(method, path, body, sub=sub, kind=kind)

    async def run(self, principal: str = "paul") -> str:
        body = {"agent": "bot", "model": "m1", "principal": principal}
        opened = await self.ok("POST", f"/v1/campaigns/{self.campaign}/runs", body, sub="bot", kind="agent")
        return str(opened["id"])

    async def call(self, run: str, operation: str, interaction: str | None = None, **arguments: Any) -> dict[str, Any]:
        body = {"server": "crm", "operation": operation, "arguments": arguments}
        body |= {"interaction": interaction} if interaction else {}
        return dict(await self.ok("POST", f"/v1/runs/{run}/calls", body, sub="bot", kind="agent"))

    async def plan(self, *entries: str, sub: str = "paul") -> dict[str, Any]:
        return dict(await self.ok("POST", f"/v1/campaigns/{self.campaign}/plans", {"entries": list(entries)}, sub=sub))

    async def undo(self, interaction: str, sub: str = "paul") -> httpx.Response:
        return await self.client(
            "POST", f"/v1/campaigns/{self.campaign}/interactions/{interaction}/undo", {"reason": "wrong"}, sub=sub
        )

    async def decide(self, plan: dict[str, Any], sub: str = "paul", **more: Any) -> httpx.Response:
        body = {"decision": "approve", "digest": plan["digest"], "reason": "wrong deal", **more}
        return await self.client("POST", f"/v1/plans/{plan['id']}/decision?wait=20", body, sub=sub)

    async def stage(self) -> str:
        return str(await self.crm.fetchval("select stage from deals where id = 'D-881'"))


@pytest.fixture
async def desk(
    postgres_url: str, empty_postgres_url: str, nats_server: NatsServer, redis_url: str, tmp_path: Path
) -> AsyncIterator[Desk]:
    environ = lab_environ(postgres_url, nats_server.url, redis_url, tmp_path)
    for_planner = environ | {"TAKEBACK_POSTGRES_URL": service_url(postgres_url, "planner")}
    async with AsyncExitStack() as stack:
        crm = await stack.enter_async_context(
            asyncpg.create_pool(driver_url(empty_postgres_url), min_size=1, max_size=8)
        )
        await crm.execute(SCHEMA + ROWS)
        server = build(crm)
        await server.prepare()
        tools = await bus.connect(nats_server.tools_url, "crm")
        stack.push_async_callback(tools.close)
        served = await server.serve_nats(tools, "tools.crm")
        stack.push_async_callback(served.close)
        provisioning = await bus.connect(nats_server.url, "provisioning")
        await bus.provision_streams(provisioning.jetstream())
        await provisioning.close()
        services = [await recorder.app.build(environ), await planner.app.build(for_planner)]
        for service in services:
            await service.start()
            stack.push_async_callback(service.stop)
        edge = Edge(services)
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://edge", timeout=60)
        )
        desk = Desk(Client(http, tmp_path / "keys"), crm, for_planner)
        members = [{"sub": sub, "role": "member"} for sub in ("paul", "rita")]
        desk.campaign = (await desk.ok("POST", "/v1/campaigns", {"name": "Acme", "members": members}))["id"]
        await desk.ok("PUT", f"/v1/campaigns/{desk.campaign}/agents/bot", {"memory": "no"})
        await desk.ok(
            "PUT", f"/v1/campaigns/{desk.campaign}/servers/crm", {"transport": "nats", "subject": "tools.crm"}
        )
        yield desk


async def test_a_turn_is_taken_back_in_one_call(desk: Desk) -> None:
    """G9, S7: fifty click, the deal is won again once, all others hear already_reverted."""
    run = await desk.run()
    await desk.call(run, "update_deal", "turn-1", dealId="D-881", stage="lost")
    assert await desk.stage() == "lost"
    answers = await asyncio.gather(*(desk.undo("turn-1") for _ in range(50)))
    assert [answer.status_code for answer in answers] == [200] * 50, [a.text for a in answers if a.status_code != 200]
    assert [answer.json()["reverted"] for answer in answers].count(True) == 1
    assert [answer.json().get("skipReason") for answer in answers].count("already_reverted") == 49
    assert await desk.stage() == "won"


async def test_fifty_people_approve_their_own_plans_and_one_compensation_runs(desk: Desk) -> None:
    """G9: 49 hear already_reverted, none that the plan is stale."""
    run = await desk.run()
    hit = await desk.call(run, "update_deal", dealId="D-881", stage="lost")
    plans = [await desk.plan(hit["entry"]["id"]) for _ in range(12)]
    answers = await asyncio.gather(*(desk.decide(plan) for plan in plans))
    assert [answer.status_code for answer in answers] == [200] * 12, [a.text for a in answers if a.status_code != 200]
    outcomes = [answer.json()["record"]["receipts"][0]["outcome"] for answer in answers]
    assert sorted(outcomes) == ["already_reverted"] * 11 + ["reverted"]


async def test_a_chain_of_edits_is_taken_back_from_its_end(desk: Desk) -> None:
    """S4, S11."""
    run = await desk.run()
    first = await desk.call(run, "update_deal", dealId="D-881", stage="one")
    for stage in ("two", "three"):
        await desk.call(run, "update_deal", dealId="D-881", stage=stage)
    plan = await desk.plan(first["entry"]["id"])
    assert [step["label"] for step in plan["steps"]] == ["e3", "e2", "e1"]
    assert [step["conflict"] for step in plan["steps"]] == [None, None, None]
    decided = await desk.decide(plan)
    assert decided.status_code == 200, decided.text
    assert decided.json()["plan"]["status"] == "completed", decided.text
    assert await desk.stage() == "won"


async def test_a_second_plan_starts_from_what_is_true_now(desk: Desk) -> None:
    """S6: the last edit is taken back first; then the one before it goes without a conflict."""
    run = await desk.run()
    first = await desk.call(run, "update_deal", dealId="D-881", stage="one")
    second = await desk.call(run, "update_deal", dealId="D-881", stage="two")
    assert (await desk.decide(await desk.plan(second["entry"]["id"]))).status_code == 200
    plan = await desk.plan(first["entry"]["id"])
    assert [(step["label"], step["conflict"]) for step in plan["steps"]] == [("e1", None)]
    decided = await desk.decide(plan)
    assert decided.json()["plan"]["status"] == "completed", decided.text
    assert await desk.stage() == "won"


async def test_a_reversal_is_taken_back_like_any_other_entry(desk: Desk) -> None:
    """S12."""
    run = await desk.run()
    hit = await desk.call(run, "update_deal", dealId="D-881", stage="lost")
    done = (await desk.decide(await desk.plan(hit["entry"]["id"]))).json()
    reversal = done["record"]["receipts"][0]["reversal"]
    again = await desk.decide(await desk.plan(reversal))
    assert again.json()["plan"]["status"] == "completed", again.text
    assert await desk.stage() == "lost"
    back = await desk.decide(await desk.plan(hit["entry"]["id"]))
    assert back.json()["plan"]["status"] == "completed", back.text
    assert await desk.stage() == "won"


async def test_what_a_teammate_changed_is_shown_and_not_overwritten(desk: Desk) -> None:
    """G4, G8, S3: a conflict in the plan, and on execution; an override sends the version that was seen."""
    run = await desk.run()
    hit = await desk.call(run, "update_deal", dealId="D-881", stage="lost", title="Pier")
    await desk.crm.execute("update deals set stage = 'reopened' where id = 'D-881'")
    plan = await desk.plan(hit["entry"]["id"])
    assert plan["steps"][0]["conflict"]["fields"] == [
        {"field": "stage", "was": "won", "wrote": "lost", "now": "reopened"}
    ]
    refused = (await desk.decide(plan)).json()
    assert refused["record"]["receipts"][0]["outcome"] == "conflict"
    assert await desk.stage() == "reopened"
    fresh = await desk.plan(hit["entry"]["id"])
    partial = await desk.decide(fresh, fields={hit["entry"]["id"]: ["title"]})
    assert partial.json()["plan"]["status"] == "completed", partial.text
    row = await desk.crm.fetchrow("select stage, title from deals where id = 'D-881'")
    assert (row["stage"], row["title"]) == ("reopened", "Harbour")


async def test_what_is_independent_goes_on_when_one_record_has_changed(desk: Desk) -> None:
    """S15: the plan said so beforehand."""
    deal = await desk.call(await desk.run(), "update_deal", dealId="D-881", stage="lost")
    made = await desk.call(await desk.run(), "create_deal", title="Lighthouse")
    await desk.crm.execute("update deals set stage = 'reopened' where id = 'D-881'")
    plan = await desk.plan(deal["entry"]["id"], made["entry"]["id"])
    assert {step["entry"]: step["conflict"] is not None for step in plan["steps"]} == {
        deal["entry"]["id"]: True,
        made["entry"]["id"]: False,
    }
    done = (await desk.decide(plan)).json()
    assert done["plan"]["status"] == "partial"
    outcomes = {receipt["entry"]: receipt["outcome"] for receipt in done["record"]["receipts"]}
    assert outcomes == {deal["entry"]["id"]: "conflict", made["entry"]["id"]: "reverted"}
    assert await desk.crm.fetchval("select count(*) from deals") == 1


async def test_the_person_who_decides_is_in_the_record_and_not_the_agent_that_proposed(desk: Desk) -> None:
    """S14, S9: an agent may propose; who took back what, and in what capacity, is in the receipt."""
    hit = await desk.call(await desk.run(), "update_deal", dealId="D-881", stage="lost")
    path = f"/v1/campaigns/{desk.campaign}/plans"
    plan = await desk.ok("POST", path, {"entries": [hit["entry"]["id"]]}, sub="bot", kind="agent")
    (receipt,) = (await desk.decide(plan)).json()["record"]["receipts"]
    assert (receipt["approvedBy"], receipt["authority"]) == ("paul", "principal")


async def test_a_mail_that_is_gone_is_named_and_the_rest_is_asked_about(desk: Desk) -> None:
    """S10, G4: not reversible as declared, with a suggested remedy; the one call hands the plan over."""
    run = await desk.run()
    await desk.ok("PUT", f"/v1/campaigns/{desk.campaign}/policy", {"operations": {"crm/send_mail": "allow"}})
    await desk.call(run, "update_deal", "turn-1", dealId="D-881", stage="lost")
    mail = await desk.call(run, "send_mail", "turn-1", to="all@example.org", subject="We lost it")
    answer = await desk.undo("turn-1")
    assert answer.status_code == 409
    plan = answer.json()["plan"]
    assert [(item["entry"], item["reason"]) for item in plan["notReversible"]] == [(mail["entry"]["id"], "declared")]
    assert [(item["kind"], item["entry"]) for item in plan["suggestions"]] == [("remedy", mail["entry"]["id"])]
    assert await desk.stage() == "lost"
    assert (await desk.decide(plan)).json()["plan"]["status"] == "completed"
    assert await desk.stage() == "won"


async def test_a_member_without_authority_is_refused_and_logged(desk: Desk) -> None:
    """G7."""
    run = await desk.run("rita")
    hit = await desk.call(run, "update_deal", "turn-r", dealId="D-881", stage="lost")
    assert (await desk.decide(await desk.plan(hit["entry"]["id"]))).status_code == 403
    assert (await desk.undo("turn-r")).status_code == 403
    log = await desk.ok("GET", f"/v1/campaigns/{desk.campaign}/security-log")
    assert [item["sub"] for item in log["items"]] == ["paul", "paul"]
    assert (await desk.undo("turn-r", sub="olga")).json()["reverted"] is True


async def test_a_rebuild_from_the_recorder_gives_the_same_tables(desk: Desk, postgres_url: str) -> None:
    """Byte for byte the same graph, links and plans."""
    run = await desk.run()
    hit = await desk.call(run, "update_deal", "turn-1", dealId="D-881", stage="lost")
    await desk.call(run, "get_deal", dealId="D-881")
    plan = await desk.plan(hit["entry"]["id"])
    graph = await desk.ok("GET", f"/v1/runs/{run}/graph")
    await desk.ok("POST", f"/v1/links/{graph['links'][0]['id']}/confirm")
    assert (await desk.undo("turn-1")).status_code == 200
    paths = (f"/v1/runs/{run}/graph", f"/v1/plans/{plan['id']}")
    shown = [await desk.ok("GET", path) for path in paths]
    before = await dumped(postgres_url)
    await rebuild(desk.environ)
    assert await dumped(postgres_url) == before
    assert [await desk.ok("GET", path) for path in paths] == shown
