"""Doubt on real servers: a call whose outcome nobody heard is settled by evidence or by a person, and never sent twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from takeback import bus, json
from tests.integration.calls_lab import Campaign, Lab, shared_lab
from tests.servers import Backend, Databases, Server
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "update": ("set_stage", {"dealId": "d1", "stage": "won"}),
    "create": ("create_deal", {"dealId": "d9", "stage": "new"}),
    "delete": ("delete_deal", {"dealId": "d1"}),
    "relative change": ("add_amount", {"dealId": "d1", "amount": 5}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(
    servers: Backend, migrated_databases: Databases, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Lab]:
    folder: Path = tmp_path_factory.mktemp("doubt")
    async with shared_lab(servers, migrated_databases, valkey_server.url, folder) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(lab: Lab) -> Campaign:
    campaign = await lab.campaign(await lab.deals())
    campaign.deals.put("d1", stage="new", amount=1)
    return campaign


@contextlib.contextmanager
def _impatient(campaign: Campaign) -> Iterator[None]:
    """What is forwarded meanwhile is soon in doubt: for calls whose answer never comes, and for them alone."""
    recording = campaign.lab.recorder.calls.recording  # type: ignore[union-attr]
    patient, recording._deadline = recording._deadline, 0.15
    try:
        yield
    finally:
        recording._deadline = patient


async def _in_doubt(campaign: Campaign, operation: str, arguments: dict[str, Any], how: str) -> str:
    campaign.deals.behave(operation, how)
    with _impatient(campaign):
        answered = await campaign.call(operation, arguments)
    await campaign.deals.arrived.wait()
    assert (answered.status_code, answered.json()["title"]) == (504, "in doubt"), answered.text
    assert answered.json()["entry"]["status"] == "in_doubt"
    return str(answered.json()["entry"]["id"])


@pytest.mark.parametrize("happened", [True, False], ids=["with the effect", "without"])
@pytest.mark.parametrize("what", CALLS)
async def test_the_servers_word_on_the_key_settles_a_doubt(campaign: Campaign, what: str, happened: bool) -> None:
    """J7, S2: committed with its undo, or failed because the server promises never to run it."""
    operation, arguments = CALLS[what]
    entry = await _in_doubt(campaign, operation, arguments, "lose" if happened else "swallow")
    settled = await campaign.status_is(entry, "committed", "failed")
    assert settled["status"] == ("committed" if happened else "failed")
    assert campaign.deals.log[entry] == int(happened)
    if happened:
        assert settled["undo"]["kind"] == "compensate"
        assert settled["effect"]["changes"]
        assert settled["result"]["structuredContent"] == {"dealId": arguments["dealId"]}


@pytest.mark.parametrize("happened", [True, False], ids=["with the effect", "without"])
@pytest.mark.parametrize("what", CALLS)
async def test_finding_the_record_exactly_as_foretold_settles_a_doubt_and_a_version_alone_does_not(
    campaign: Campaign, what: str, happened: bool
) -> None:
    """J7: where the server cannot say what became of a key; without the effect it stays for a person."""
    operation, arguments = CALLS[what]
    await campaign.policy(operations={f"deals/{operation}": "ask"})
    campaign.deals.knows_keys = False
    asked = (await campaign.call(operation, arguments)).json()
    campaign.deals.behave(operation, "lose" if happened else "swallow")
    entry = asked["entry"]["id"]
    with _impatient(campaign):
        await campaign.decide(asked["approval"]["id"])
        settled = await campaign.status_is(entry, "committed" if happened else "in_doubt")
    if happened:
        assert settled["effect"]["changes"]
        assert settled["undo"]["kind"] == "unknown"
        return
    campaign.deals.put("d9" if what == "create" else "d1", stage="somebody else's", amount=1)
    observed = campaign.deals.observed
    await eventually(lambda: campaign.deals.observed > observed + 1)
    assert (await campaign.entry(entry))["status"] == "in_doubt"


@pytest.mark.parametrize("what", CALLS)
async def test_without_a_word_on_the_key_and_without_a_forecast_a_person_settles_it(
    campaign: Campaign, what: str
) -> None:
    """J7: `happened` and `did-not-happen`, by a person with authority, once."""
    operation, arguments = CALLS[what]
    campaign.deals.knows_keys = False
    entry = await _in_doubt(campaign, operation, arguments, "lose")
    path, wanted = f"/v1/entries/{entry}/resolution", {"outcome": "happened", "reason": "I looked"}
    client = campaign.lab.client
    assert (await client("POST", path, wanted, sub="bot", kind="agent")).json()["title"] == "human required"
    assert (await client("POST", path, wanted, sub="paula")).json()["title"] == "not authorised"
    assert (await client("POST", path, wanted, sub="nobody")).status_code == 404
    settled = await client.ok("POST", path, wanted, sub="pete")
    assert (settled["status"], settled["undo"]["kind"]) == ("committed", "unknown")
    assert (await client("POST", path, wanted)).status_code == 409
    assert (await campaign.entry(entry))["status"] == "committed"


async def test_a_person_may_say_that_it_did_not_happen(campaign: Campaign) -> None:
    campaign.deals.knows_keys = False
    entry = await _in_doubt(campaign, "set_stage", CALLS["update"][1], "swallow")
    path, wanted = f"/v1/entries/{entry}/resolution", {"outcome": "did-not-happen", "reason": "I looked"}
    assert (await campaign.lab.client.ok("POST", path, wanted))["status"] == "failed"
    assert (await campaign.set_stage("won")).status_code == 200


async def test_a_payment_in_doubt_is_not_made_again_unasked(campaign: Campaign) -> None:
    """S2, P10: the second one is asked and told why, and once the doubt is settled nobody is asked any more."""
    await campaign.policy(operations={"deals/pay": "allow"})
    campaign.deals.knows_keys = False
    entry = await _in_doubt(campaign, "pay", {"amount": 100}, "lose")
    second = await campaign.call("pay", {"amount": 100})
    assert second.status_code == 202
    assert entry in second.json()["why"]
    assert "policy" not in second.json()["why"]
    other = await campaign.call("pay", {"amount": 7})
    assert other.status_code == 202, "its resource is unknown, so the whole operation is in doubt"
    assert sum(campaign.deals.log.values()) == 1
    campaign.deals.knows_keys = True
    settled = await campaign.status_is(entry, "committed")
    assert settled["result"]["structuredContent"] == {"sent": True}
    assert (await campaign.call("pay", {"amount": 7})).status_code == 200


async def test_an_approval_that_was_given_in_doubt_fails_closed_when_the_doubt_is_settled(campaign: Campaign) -> None:
    """S2, S13: whoever agreed did not know that the first payment had gone through."""
    await campaign.policy(operations={"deals/pay": "allow"})
    campaign.deals.knows_keys = False
    entry = await _in_doubt(campaign, "pay", {"amount": 100}, "lose")
    second = (await campaign.call("pay", {"amount": 100})).json()
    campaign.deals.knows_keys = True
    await campaign.status_is(entry, "committed")
    await campaign.decide(second["approval"]["id"])
    await campaign.status_is(second["entry"]["id"], "expired")
    assert sum(campaign.deals.log.values()) == 1


async def test_writes_to_a_record_in_doubt_are_asked_and_other_records_and_reads_are_not(campaign: Campaign) -> None:
    """J7."""
    campaign.deals.knows_keys = False
    await _in_doubt(campaign, "set_stage", CALLS["update"][1], "swallow")
    assert (await campaign.call("add_amount", {"dealId": "d1", "amount": 1})).status_code == 202
    assert (await campaign.call("add_amount", {"dealId": "d2", "amount": 1})).status_code == 200
    assert (await campaign.call("read_deal", {"dealId": "d1"})).status_code == 200


async def test_a_retry_under_the_callers_key_hears_of_the_doubt(campaign: Campaign) -> None:
    """J7: it never forwards again."""
    campaign.deals.knows_keys = False
    campaign.deals.behave("set_stage", "lose")
    with _impatient(campaign):
        first = await campaign.set_stage("won", idempotency_key="k")
    await campaign.deals.arrived.wait()
    again = await campaign.set_stage("won", idempotency_key="k")
    assert (first.status_code, again.status_code) == (504, 504)
    assert first.json()["entry"]["id"] == again.json()["entry"]["id"]
    assert campaign.deals.effects == 1


async def test_an_outcome_that_comes_late_settles_the_doubt_that_its_lease_left(campaign: Campaign) -> None:
    """J7: the replica that waited for it is believed."""
    campaign.deals.knows_keys = False
    campaign.deals.behave("set_stage", "hang")
    call = asyncio.ensure_future(campaign.set_stage("won"))
    await campaign.deals.arrived.wait()
    entry = (await campaign.entries())[0]["id"]
    await campaign.lab.sql("update recorder.entries set lease_until = now() where id = $1 returning id", entry)
    await campaign.status_is(entry, "in_doubt")
    campaign.deals.release.set()
    assert (await call).status_code == 200
    assert (await campaign.entry(entry))["status"] == "committed"


async def test_a_call_whose_lease_ran_out_before_it_was_sent_is_not_sent(campaign: Campaign) -> None:
    """J7: a holder past its lease no longer sends; nothing happened."""
    intents = campaign.lab.recorder.calls.recording._intents  # type: ignore[union-attr]
    usual, intents._lease_seconds = intents._lease_seconds, intents._deadline / 2  # past it at once
    try:
        answered = await campaign.set_stage("won")
    finally:
        intents._lease_seconds = usual
    assert (answered.status_code, answered.json()["entry"]["status"]) == (502, "failed")
    assert campaign.deals.calls == []


async def test_a_call_that_still_runs_after_a_second_is_hinted_at_on_the_bus(campaign: Campaign) -> None:
    """contract.md, Bus: `entry.pending`, unnumbered."""
    nats = await bus.connect(campaign.lab.environ["TAKEBACK_NATS_URL"], "listener")
    heard = await nats.subscribe(f"takeback.{campaign.id}.entry.pending")
    await bus.settle(nats)
    campaign.deals.behave("set_stage", "hang")
    call = asyncio.ensure_future(campaign.set_stage("won"))
    event = json.loads((await heard.next_msg(timeout=15)).data)
    assert (event["data"]["entry"]["status"], "seq" in event["data"]) == ("pending", False)
    campaign.deals.release.set()
    assert (await call).status_code == 200
    await nats.close()
