"""Approvals on real servers: a call waits for a person, and is forwarded once, by one recorder, if nothing has changed."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
import pytest_asyncio

from tests.integration.calls_lab import Campaign, Lab
from tests.recorder_lab import recorder_lab
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(lab: Lab) -> Campaign:
    campaign = await lab.campaign(await lab.deals())
    campaign.deals.put("d1", stage="new")
    await campaign.policy(operations={"deals/set_stage": "ask"})
    return campaign


async def test_an_approval_says_who_was_asked_what_would_happen_and_who_decided(campaign: Campaign) -> None:
    """P6, G7."""
    asked = (await campaign.set_stage("won")).json()
    approval = asked["approval"]
    assert [item["sub"] for item in approval["asked"]] == ["ann", "olga", "pete"]
    assert approval["preview"]["effects"][0]["changes"] == [{"field": "stage", "old": "new", "new": "won"}]
    assert approval["snapshot"]["version"] == "v1"
    assert asked["entry"]["approval"] == approval["id"]
    listed = await campaign.owner("GET", "approvals?status=pending")
    assert listed["items"] == [{**approval, "why": ["the policy asks for the operation"]}]
    decided = (await campaign.decide(approval["id"], sub="ann")).json()
    assert (decided["status"], decided["decidedBy"], decided["authenticatedBy"]) == ("approved", "ann", "token")
    entry = await campaign.status_is(asked["entry"]["id"], "committed")
    assert (entry["label"], entry["effect"]["version"]) == ("e1", "v2")
    assert campaign.deals.log[entry["id"]] == 1
    assert await campaign.record_types() == [
        "run.opened",
        "approval.requested",
        "approval.decided",
        "entry.intended",
        "entry.committed",
    ]
    assert (await campaign.owner("GET", "approvals?status=pending"))["items"] == []


async def test_only_people_are_told_why_a_call_asks(campaign: Campaign) -> None:
    """P10: the caller hears that it waits, and reads no rule that the next call could pass by."""
    asked = (await campaign.set_stage("won", idempotency_key="why")).json()
    again = (await campaign.set_stage("won", idempotency_key="why")).json()
    path = f"/v1/approvals/{asked['approval']['id']}"
    client, agent = campaign.lab.client, {"sub": "bot", "kind": "agent"}
    assert (await client.ok("GET", path, sub="pete"))["why"] == ["the policy asks for the operation"]
    read = await client.ok("GET", path, **agent)
    [listed] = (await client.ok("GET", f"/v1/campaigns/{campaign.id}/approvals?status=pending", **agent))["items"]
    for told in (asked["approval"], again["approval"], read, listed):
        assert "why" not in told
    decided = await campaign.decide(asked["approval"]["id"], "deny", sub="ann")
    assert decided.json()["why"] == ["the policy asks for the operation"]


async def test_a_denied_call_is_never_forwarded(campaign: Campaign) -> None:
    asked = (await campaign.set_stage("won")).json()
    assert (await campaign.decide(asked["approval"]["id"], "deny")).status_code == 200
    assert (await campaign.entry(asked["entry"]["id"]))["status"] == "denied"
    again = await campaign.decide(asked["approval"]["id"], "approve")
    assert again.status_code == 409
    assert campaign.deals.effects == 0


async def test_a_passkeys_assertion_is_refused_while_nobody_checks_it(campaign: Campaign) -> None:
    """P6: what is taken without effect would be trusted; the approval waits on."""
    approval = (await campaign.set_stage("won")).json()["approval"]["id"]
    path, wanted = f"/v1/approvals/{approval}/decision", {"decision": "approve", "assertion": {"id": "key"}}
    refused = await campaign.lab.client("POST", path, wanted, sub="olga")
    assert (refused.status_code, refused.json()["title"]) == (422, "no passkeys"), refused.text
    assert (await campaign.lab.client.ok("GET", f"/v1/approvals/{approval}"))["status"] == "pending"


async def test_only_people_with_authority_decide(campaign: Campaign) -> None:
    """G7: the principal may, a bystander and an agent may not, a stranger sees nothing; what was refused is logged."""
    approval = (await campaign.set_stage("won")).json()["approval"]["id"]
    path, wanted = f"/v1/approvals/{approval}/decision", {"decision": "approve"}
    agent = await campaign.lab.client("POST", path, wanted, sub="bot", kind="agent")
    assert (agent.status_code, agent.json()["title"]) == (403, "human required")
    assert (await campaign.decide(approval, sub="paula")).json()["title"] == "not authorised"
    assert (await campaign.decide(approval, sub="nobody")).status_code == 404
    logged = (await campaign.owner("GET", "security-log"))["items"]
    assert [(item["sub"], item["what"]) for item in logged] == [
        ("paula", "decide this approval"),
        ("bot", "decide an approval"),
    ]
    assert (await campaign.decide(approval, sub="pete")).status_code == 200


async def test_a_retry_while_waiting_and_after_is_the_same_entry(campaign: Campaign) -> None:
    """S13: the retry after the approval is the continuation, exactly once."""
    first = await campaign.set_stage("won", idempotency_key="k")
    waiting = await campaign.set_stage("won", idempotency_key="k")
    assert (waiting.status_code, waiting.json()["entry"]["id"]) == (202, first.json()["entry"]["id"])
    assert waiting.json()["approval"]["id"] == first.json()["approval"]["id"]
    await campaign.decide(first.json()["approval"]["id"])
    await campaign.status_is(first.json()["entry"]["id"], "committed")
    done = await campaign.set_stage("won", idempotency_key="k")
    assert (done.status_code, done.json()["entry"]["id"]) == (200, first.json()["entry"]["id"])
    assert campaign.deals.effects == 1


async def test_the_deadline_starts_when_the_call_is_forwarded(campaign: Campaign) -> None:
    """S13: a person may take longer than any deadline of a tool."""
    asked = (await campaign.set_stage("won")).json()
    entry = asked["entry"]["id"]
    await campaign.lab.sql(
        "update recorder.entries set created_at = created_at - interval '1 day' where id = $1 returning id", entry
    )
    await campaign.decide(asked["approval"]["id"])
    assert (await campaign.status_is(entry, "committed", "failed", "in_doubt"))["status"] == "committed"


async def _record_moves(campaign: Campaign) -> None:
    campaign.deals.put("d1", stage="renamed")


async def _policy_changes(campaign: Campaign) -> None:
    await campaign.policy(operations={"deals/set_stage": "ask"}, minWindowSeconds=1)


async def _run_closes(campaign: Campaign) -> None:
    await campaign.lab.client.ok("POST", f"/v1/runs/{campaign.run}/close")


async def _definition_changes(campaign: Campaign) -> None:
    assert (await campaign.call("set_stage", {"dealId": "d2", "stage": "x"})).status_code == 202
    campaign.deals.redeclare("set_stage", tier="low")
    await campaign.owner("PUT", "servers/deals", {"transport": "nats", "subject": campaign.deals.subject})


async def _agent_loses_the_operation(campaign: Campaign) -> None:
    await campaign.owner("PUT", "agents/bot", {"memory": "no", "operations": []})


@pytest.mark.parametrize(
    "change", [_record_moves, _policy_changes, _run_closes, _definition_changes, _agent_loses_the_operation]
)
async def test_what_was_agreed_to_fails_closed_when_things_have_changed(campaign: Campaign, change) -> None:  # type: ignore[no-untyped-def]
    """S13: the call is not forwarded, the entry says why, and the agent may ask anew."""
    asked = (await campaign.set_stage("won")).json()
    await change(campaign)
    assert (await campaign.decide(asked["approval"]["id"])).status_code == 200
    await campaign.status_is(asked["entry"]["id"], "expired")
    assert (await campaign.lab.client.ok("GET", f"/v1/approvals/{asked['approval']['id']}"))["status"] == "expired"
    assert campaign.deals.effects == 0


async def test_an_approved_call_of_a_paused_run_waits_for_the_run(campaign: Campaign) -> None:
    asked = (await campaign.set_stage("won")).json()
    await campaign.lab.client.ok("POST", f"/v1/runs/{campaign.run}/pause")
    await campaign.decide(asked["approval"]["id"])
    await campaign.lab.client.ok("POST", f"/v1/runs/{campaign.run}/resume")
    await campaign.status_is(asked["entry"]["id"], "committed")


async def test_an_approval_that_nobody_answers_expires(campaign: Campaign) -> None:
    """P6."""
    asked = (await campaign.set_stage("won")).json()
    approval = asked["approval"]["id"]
    await campaign.lab.sql("update recorder.approvals set expires_at = now() where id = $1 returning id", approval)
    await campaign.status_is(asked["entry"]["id"], "expired")
    assert (await campaign.decide(approval)).status_code == 409
    assert campaign.deals.effects == 0


async def test_two_recorders_forward_each_approved_call_once(campaign: Campaign) -> None:
    """J17: whoever takes the row, the tool hears of it once."""
    async with recorder_lab(campaign.lab.environ):
        asked = [(await campaign.set_stage(f"s{n}", f"deal-{n}")).json() for n in range(12)]
        await asyncio.gather(*(campaign.decide(item["approval"]["id"]) for item in asked))

        async def all_done() -> bool:
            return all(entry["status"] == "committed" for entry in await campaign.entries())

        await eventually(all_done)
    assert Counter(campaign.deals.log.values()) == {1: 12}
    assert {item["entry"]["id"] for item in asked} == set(campaign.deals.log)


async def test_a_tool_error_after_approval_is_told_in_the_entry(campaign: Campaign) -> None:
    asked = (await campaign.set_stage("won")).json()
    campaign.deals.behave("set_stage", "error")
    await campaign.decide(asked["approval"]["id"])
    assert (await campaign.status_is(asked["entry"]["id"], "failed"))["undo"]["kind"] == "none"


async def test_an_asked_read_is_forwarded_after_approval(campaign: Campaign) -> None:
    await campaign.policy(operations={"deals/read_deal": "ask"})
    asked = (await campaign.call("read_deal", {"dealId": "d1"})).json()
    await campaign.decide(asked["approval"]["id"])
    entry = await campaign.status_is(asked["entry"]["id"], "committed")
    assert entry["effect"]["uses"] == ["crm://lab/deal/d1"]
