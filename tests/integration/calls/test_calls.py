"""The way of a call, on real servers: recorded before it runs, forwarded once, concluded with what it did."""

from __future__ import annotations

import asyncio

import pytest

from recorder.kept import KeptAnswers
from tests.integration.calls_lab import Campaign, Lab
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_call_is_recorded_before_and_after_it_ran_with_what_it_did(campaign: Campaign) -> None:
    """J1, J2, J5, J8: intent and outcome are two records, and the entry says everything."""
    campaign.deals.put("d1", stage="new")
    answered = await campaign.set_stage("won", interaction="turn-1")
    assert answered.status_code == 200, answered.text
    entry = answered.json()["entry"]
    assert answered.json()["result"]["structuredContent"] == {"dealId": "d1"}
    assert "_meta" not in answered.json()["result"]
    assert (entry["label"], entry["status"], entry["kind"], entry["tier"]) == ("e1", "committed", "call", "medium")
    assert (entry["agent"], entry["model"], entry["principal"]) == ("bot", "m1", "pete")
    assert entry["effect"]["resource"] == "crm://lab/deal/d1"
    assert entry["effect"]["before"] == {"version": "v1", "fields": {"stage": "new"}}
    assert entry["effect"]["changes"] == [{"field": "stage", "old": "new", "new": "won"}]
    assert entry["snapshot"]["fields"] == {"stage": "new"}
    assert (entry["undo"]["kind"], entry["undo"]["ifVersion"]) == ("compensate", "v2")
    assert entry["undo"]["undoBy"] > entry["createdAt"]
    assert "compensationToken" not in answered.text
    assert await campaign.record_types() == ["run.opened", "entry.intended", "entry.committed"]
    assert await campaign.entry(entry["id"]) == entry
    assert campaign.deals.log[entry["id"]] == 1
    assert campaign.deals.calls[0][2]["idempotencyKey"] == entry["id"]


async def test_a_declared_read_is_one_record_that_names_what_it_used(campaign: Campaign) -> None:
    """J12: no snapshot, no fence; what was read is named."""
    campaign.deals.put("d1", stage="new")
    entry = (await campaign.call("read_deal", {"dealId": "d1"})).json()["entry"]
    assert (entry["kind"], entry["status"], entry["undo"]["kind"]) == ("read", "committed", "none")
    assert entry["effect"]["uses"] == ["crm://lab/deal/d1"]
    assert entry["concludedAt"] is not None
    assert await campaign.record_types() == ["run.opened", "entry.committed"]


async def test_an_error_of_the_tool_is_a_failed_entry_that_the_caller_gets(campaign: Campaign) -> None:
    """J2."""
    campaign.deals.behave("set_stage", "error")
    answered = await campaign.set_stage("won")
    assert (answered.status_code, answered.json()["title"]) == (502, "tool failed")
    assert "the deal is locked" in answered.json()["detail"]
    assert answered.json()["entry"]["status"] == "failed"
    assert answered.json()["entry"]["undo"]["kind"] == "none"


async def test_an_effect_that_the_tool_does_not_tell_is_built_from_before_and_after(campaign: Campaign) -> None:
    """J8."""
    campaign.deals.put("d1", stage="new", owner="pete")
    entry = (await campaign.call("quiet", {"dealId": "d1", "stage": "won"})).json()["entry"]
    assert entry["effect"]["changes"] == [{"field": "stage", "old": "new", "new": "won"}]
    assert (entry["effect"]["version"], entry["undo"]["ifVersion"]) == ("v2", "v2")


async def test_a_server_that_carries_the_state_before_is_not_asked_for_it(campaign: Campaign) -> None:
    """J4."""
    campaign.deals.readable = False
    campaign.deals.put("d1", stage="new")
    entry = (await campaign.call("carried", {"dealId": "d1", "stage": "won"})).json()["entry"]
    assert entry["effect"]["before"]["fields"] == {"stage": "new"}
    assert campaign.deals.observed == 0


MALFORMED = {
    "bad kind": {"undo": {"kind": "maybe", "compensationToken": "t"}},
    "bad date": {"undo": {"kind": "compensate", "compensationToken": "t", "undoBy": "soon"}},
    "missing token": {"undo": {"kind": "compensate"}},
    "wrong types": {"undo": 7, "effect": [1], "broadcasts": "all"},
    "not an object": "compensate",
    "nul inside": {"undo": {"kind": "compensate", "compensationToken": "a\u0000b"}},
}


@pytest.mark.parametrize("how", MALFORMED)
async def test_a_malformed_declaration_is_kept_as_unresolved_and_spoils_nothing_after_it(
    campaign: Campaign, how: str
) -> None:
    """J11."""
    await campaign.policy(operations={"deals/raw": "allow"})
    if how == "nul inside":
        campaign.deals._run = _with_meta(campaign.deals._run, MALFORMED[how])  # type: ignore[method-assign]
        answered = await campaign.call("raw", {"dealId": "d1", "meta": {}})
    else:
        answered = await campaign.call("raw", {"dealId": "d1", "meta": MALFORMED[how]})
    assert answered.status_code == 200, answered.text
    entry = answered.json()["entry"]
    assert entry["unresolved"], entry
    assert entry["undo"]["kind"] == "unknown"
    assert (await campaign.set_stage("won", "d2")).json()["entry"]["unresolved"] == []


def _with_meta(run, meta):  # type: ignore[no-untyped-def]
    def changed(name, arguments, key):  # type: ignore[no-untyped-def]
        reply = run(name, arguments, key)
        return {**reply, "_meta": {"io.github.takeback/undo": meta}} if name == "raw" else reply

    return changed


async def test_secrets_are_sealed_from_the_first_record_on(campaign: Campaign) -> None:
    """J18: neither the journal nor an event holds the secret or the token; a person with authority reads the secret."""
    answered = await campaign.call("set_pin", {"dealId": "d1", "pin": "s3cret-4711"})
    entry = answered.json()["entry"]
    assert entry["arguments"]["pin"] == {"sealed": True}
    rows = await campaign.lab.sql(
        "select convert_from(body, 'UTF8') as body from recorder.records where stream = $1", campaign.run
    )
    assert rows
    assert not any("s3cret-4711" in row["body"] or "token-of-" in row["body"] for row in rows)
    opened = await campaign.entry(entry["id"], sub="pete")
    assert opened["arguments"]["pin"] == "s3cret-4711"
    assert opened["effect"]["changes"][0]["new"] == "s3cret-4711"
    assert "compensationToken" not in opened["undo"]
    assert (await campaign.entry(entry["id"], sub="paula"))["arguments"]["pin"] == {"sealed": True}


async def test_the_same_key_and_body_is_the_same_entry_and_forwards_once(campaign: Campaign) -> None:
    """J7: a client's retry finds its entry; another body under the key is refused; without a key it is a new entry."""
    first = await campaign.set_stage("won", idempotency_key="k1")
    again = await campaign.set_stage("won", idempotency_key="k1")
    assert (again.status_code, again.json()["entry"]["id"]) == (200, first.json()["entry"]["id"])
    assert again.json()["result"] == first.json()["result"]
    other = await campaign.set_stage("lost", idempotency_key="k1")
    assert other.status_code == 422
    assert campaign.deals.effects == 1
    assert (await campaign.set_stage("won")).json()["entry"]["id"] != first.json()["entry"]["id"]


async def test_a_key_tells_nothing_to_whoever_has_left_the_campaign(campaign: Campaign) -> None:
    """G7: not even of an entry of their own."""
    mine = {"sub": "pete", "kind": "human", "idempotency_key": "k3"}
    assert (await campaign.set_stage("won", **mine)).status_code == 200
    gone = await campaign.lab.client("DELETE", f"/v1/campaigns/{campaign.id}/members/pete")
    assert gone.status_code == 204, gone.text
    assert (await campaign.set_stage("won", **mine)).status_code == 404


async def test_a_key_is_forgotten_once_its_seven_days_are_over(campaign: Campaign) -> None:
    """contract.md: a key is kept 7 days; those that are younger stay, and no row stays for ever."""
    for key in ("old", "young"):
        await campaign.set_stage(key, idempotency_key=key)
    await campaign.lab.sql("update recorder.idempotency set created_at = now() - interval '7 days' where key = 'old'")
    await campaign.lab.sql(
        "update recorder.idempotency set created_at = now() - interval '6 days 23 hours' where key = 'young'"
    )
    assert await KeptAnswers(campaign.lab.recorder.pool).forget() == 1
    kept = await campaign.lab.sql("select key from recorder.idempotency where key in ('old', 'young')")
    assert [row["key"] for row in kept] == ["young"]


async def test_duplicates_at_the_same_moment_forward_once(campaign: Campaign) -> None:
    """J7."""
    answers = await asyncio.gather(*(campaign.set_stage("won", idempotency_key="k2") for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {200, 202}
    assert len({answer.json()["entry"]["id"] for answer in answers}) == 1
    assert campaign.deals.effects == 1


async def test_writes_of_a_campaign_go_one_after_another_and_reads_do_not_wait(campaign: Campaign) -> None:
    """J19."""
    campaign.deals.behave("set_stage", "hang")
    slow = asyncio.ensure_future(campaign.set_stage("won"))
    await campaign.deals.arrived.wait()
    behind = asyncio.ensure_future(campaign.set_stage("lost", "d2"))
    assert (await campaign.call("read_deal", {"dealId": "d1"})).status_code == 200
    assert not behind.done()
    assert [name for name, _, _ in campaign.deals.calls] == ["set_stage", "read_deal"]
    campaign.deals.release.set()
    assert (await slow).status_code == (await behind).status_code == 200


async def test_twenty_callers_on_one_record_leave_an_unbroken_line_of_states(campaign: Campaign) -> None:
    """J19: each entry's pre-state is what the one before it left."""
    answers = await asyncio.gather(*(campaign.call("add_amount", {"dealId": "d1", "amount": n}) for n in range(1, 21)))
    assert {answer.status_code for answer in answers} == {200}
    entries = sorted(await campaign.entries(), key=lambda entry: int(entry["label"][1:]))
    left = None
    for entry in entries:
        assert (entry["snapshot"]["version"], entry["snapshot"]["exists"]) == (left, left is not None)
        left = entry["effect"]["version"]
    assert campaign.deals.deals["d1"]["fields"]["amount"] == sum(range(1, 21))


async def test_a_caller_that_leaves_does_not_take_the_outcome_with_it(campaign: Campaign) -> None:
    """J7."""
    campaign.deals.behave("set_stage", "hang")
    call = asyncio.ensure_future(campaign.set_stage("won"))
    await campaign.deals.arrived.wait()
    call.cancel()
    campaign.deals.release.set()
    entry = (await eventually(campaign.entries))[0]
    assert (await campaign.status_is(entry["id"], "committed"))["effect"]["version"] == "v1"


async def test_a_preview_holds_until_its_record_moves(campaign: Campaign) -> None:
    """P7."""
    campaign.deals.put("d1", stage="new")
    path = f"/v1/runs/{campaign.run}/previews"
    wanted = {"server": "deals", "operation": "set_stage", "arguments": {"dealId": "d1", "stage": "won"}}
    shown = await campaign.lab.client.ok("POST", path, wanted, sub="bot", kind="agent")
    assert shown["effect"]["changes"] == [{"field": "stage", "old": "new", "new": "won"}]
    assert (shown["version"], shown["decision"]) == ("v1", "allow")
    campaign.deals.put("d1", stage="renamed")
    stale = await campaign.set_stage("won", preview=shown["id"])
    assert (stale.status_code, stale.json()["title"]) == (409, "preview stale")
    fresh = await campaign.lab.client.ok("POST", path, wanted, sub="bot", kind="agent")
    assert (await campaign.set_stage("won", preview=fresh["id"])).status_code == 200


async def test_a_repair_is_asked_and_linked_into_the_chain_of_what_it_repairs(campaign: Campaign) -> None:
    """J14: even after the run of the repaired entry was closed."""
    repaired = (await campaign.set_stage("won")).json()["entry"]
    await campaign.lab.client.ok("POST", f"/v1/runs/{campaign.run}/close")
    later = await campaign.open_run()
    asked = await campaign.set_stage("lost", run=later, remedies=repaired["id"])
    assert asked.status_code == 202
    await campaign.decide(asked.json()["approval"]["id"])
    remedy = await campaign.status_is(asked.json()["entry"]["id"], "committed")
    assert (remedy["kind"], remedy["remedies"]) == ("remedy", repaired["id"])
    assert (await campaign.record_types())[-1] == "entry.remedied"
    refused = await campaign.set_stage("x", run=later, corrects="ent_of_nobody")
    assert refused.status_code == 422


async def test_host_links_are_kept_and_broken_ones_named(campaign: Campaign) -> None:
    """G1, J11."""
    first = (await campaign.set_stage("won")).json()["entry"]
    second = await campaign.set_stage("lost", dependsOn=[first["id"], "ent_gone"], uses=["x://y"])
    assert second.json()["entry"]["unresolved"][0]["field"] == "dependsOn[1]"
    rows = await campaign.lab.sql("select view from recorder.entries where id = $1", second.json()["entry"]["id"])
    assert first["id"].encode() in rows[0]["view"]


async def test_the_same_key_opens_one_campaign_and_one_run(lab: Lab) -> None:
    """J17: a client that lost the answer asks again; another body under the key is refused."""
    wanted, key = {"name": "kept"}, "one key"
    first = await lab.client.ok("POST", "/v1/campaigns", wanted, idempotency_key=key)
    again = await lab.client.ok("POST", "/v1/campaigns", wanted, idempotency_key=key)
    assert again == first
    other = await lab.client("POST", "/v1/campaigns", {"name": "other"}, idempotency_key=key)
    assert (other.status_code, other.json()["title"]) == (422, "idempotency conflict")

    path, run = f"/v1/campaigns/{first['id']}/runs", {"agent": "bot", "model": "m1", "principal": "olga"}
    opened = await lab.client.ok("POST", path, run, idempotency_key=key)
    assert await lab.client.ok("POST", path, run, idempotency_key=key) == opened
    assert [item["id"] for item in (await lab.client.ok("GET", path))["items"]] == [opened["id"]]
