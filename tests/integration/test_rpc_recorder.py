"""The recorder's bus door, asked as the planner and the notifier ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from takeback import json
from takeback.errors import Problem
from takeback.ids import new_id
from takeback.messages.campaign import CampaignRequest
from takeback.messages.events import EVENT_DATA, Event
from takeback.subjects import (
    RPC_APPEND,
    RPC_HEADS,
    RPC_OBSERVE,
    RPC_RECORDS,
    RPC_REFUSED,
    RPC_STREAMS,
    TYPE_PREFIX,
)
from tests.integration.reversals_lab import AGENT, APPROVER, OWNER, Lab, lab_on


@pytest.fixture
async def lab(postgres_url: str, nats_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Lab]:
    async with lab_on(postgres_url, nats_url, redis_url, tmp_path / "keys") as running:
        yield running


async def test_heads_say_how_far_streams_are_published_and_what_is_not_settled(lab: Lab) -> None:
    """Design: read your own writes."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    heads = await lab.rpc.request(RPC_HEADS, {"campaign": lab.campaign})
    assert {head["stream"] for head in heads["streams"]} == {lab.campaign, lab.run}
    assert heads["unsettled"] == []
    lab.office.mode = "lie"
    await lab.take_back(entry)
    later = await lab.rpc.request(RPC_HEADS, {"campaign": lab.campaign, "movedSince": heads["now"]})
    assert {item["entry"]["status"] for item in later["unsettled"]} == {"reverting", "unverified"}
    assert "compensationToken" not in str(later)
    assert heads["streams"] != later["streams"]


async def test_every_record_of_a_reversal_reads_as_the_event_that_its_type_promises(lab: Lab) -> None:
    """N6, contract Bus: in order, each naming the one before, no token in any."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    await lab.take_back(entry)
    seen: list[str] = []
    for stream in (lab.run, lab.campaign):
        after, hash_ = 0, ""
        while events := (await lab.rpc.request(RPC_RECORDS, {"stream": stream, "after": after, "limit": 3}))["events"]:
            for document in events:
                event = Event.model_validate(document)
                short = event.type.removeprefix(TYPE_PREFIX)
                EVENT_DATA[short].model_validate(event.data)
                assert event.data["after"] == after
                after, hash_ = event.data["seq"], event.data["hash"]
                seen.append(short)
                assert "compensationToken" not in json.dumps(document).decode()
        heads = await lab.rpc.request(RPC_HEADS, {"campaign": lab.campaign})
        assert {"stream": stream, "seq": after, "hash": hash_} in heads["streams"]
    assert seen[:4] == ["run.opened", "entry.committed", "entry.reverted", "entry.committed"]
    assert seen[-4:] == ["plan.proposed", "plan.decided", "reversal.step", "reversal.completed"]


async def test_an_entry_that_was_taken_back_says_by_which_plan_and_person(lab: Lab) -> None:
    """S14, N5: what clients are told comes from this event."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    plan = await lab.propose(entry)
    await lab.approve(plan, APPROVER)
    await lab.record(plan)
    events = (await lab.rpc.request(RPC_RECORDS, {"stream": lab.run}))["events"]
    (told,) = [event["data"] for event in events if event["type"].endswith("entry.reverted")]
    assert (told["plan"], told["entry"]["id"], told["entry"]["revertedByPerson"]) == (plan, entry, "ann")
    assert told["entry"]["revertedBy"] and told["entry"]["revertedAt"]


async def test_streams_come_page_by_page(lab: Lab) -> None:
    """Rebuilds read them all."""
    found, cursor = [], None
    while True:
        page = await lab.rpc.request(RPC_STREAMS, {"limit": 1, **({"cursor": cursor} if cursor else {})})
        found += [item["stream"] for item in page["streams"]]
        cursor = page.get("next")
        if cursor is None:
            break
    assert sorted(found) == sorted([lab.campaign, lab.run])


async def test_each_record_is_observed_with_its_own_answer_or_its_own_error(lab: Lab) -> None:
    """G4."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    items = [
        {"entry": entry},
        {"entry": entry, "resource": "office://doc/none", "server": "office"},
        {"entry": entry, "resource": "other://1", "server": "office"},
        {"entry": entry, "resource": "office://doc/d2", "server": "nowhere"},
        {"entry": "ent_unknown"},
    ]
    answer = await lab.rpc.request(RPC_OBSERVE, {"campaign": lab.campaign, "items": items})
    first, gone, foreign, nowhere, unknown = answer["observations"]
    assert (first["resource"], first["version"], first["fields"]["title"]) == ("office://doc/d1", "2", "x")
    assert (gone["exists"], gone["version"]) == (False, "absent")
    assert all(item["error"] for item in (foreign, nowhere, unknown))
    other = await lab.recorder.campaigns.open(OWNER, _campaign())
    hidden = await lab.rpc.request(RPC_OBSERVE, {"campaign": other["id"], "items": [{"entry": entry}]})
    assert hidden["observations"][0]["error"] == "There is no such entry in this campaign."


async def test_a_fact_that_is_sent_again_is_written_once(lab: Lab) -> None:
    """Design: every fact has one home."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    facts: dict[str, dict[str, Any]] = {
        "link.confirmed": {"link": "lnk_1", "entry": entry, "dependsOn": entry},
        "review.acknowledged": {"run": lab.run, "entries": [entry]},
        "window.reminded": {
            "run": lab.run, "entry": entry, "undoBy": "2026-12-01T12:00:00Z", "recipient": "ann",
            "deliveredAt": "2026-12-01T11:00:00Z",
        },
        "window.lapsed": {
            "run": lab.run, "entry": entry, "undoBy": "2026-12-01T12:00:00Z", "how": "after_acknowledgement",
            "acknowledgedBy": "ann",
        },
    }  # fmt: skip
    for type_, body in facts.items():
        record = new_id("rec")
        first, second = [await lab.append(type_, body, OWNER, record) for _ in range(2)]
        assert first == second
        stored = await lab.recorder.reader.record(record)
        assert stored is not None
        assert (stored.seq, stored.type) == (first["seq"], type_)
        assert json.loads(stored.body)["by"]["sub"] == OWNER.sub


async def test_only_people_confirm_links_and_acknowledge_reviews(lab: Lab) -> None:
    """G2, N4."""
    for type_, body in (
        ("link.confirmed", {"link": "lnk_1", "entry": "ent_1", "dependsOn": "ent_2"}),
        ("review.acknowledged", {"run": lab.run}),
    ):
        with pytest.raises(Problem) as refused:
            await lab.append(type_, body, AGENT)
        assert refused.value.slug == "human-required"


async def test_what_is_not_of_the_campaign_is_not_found_and_what_is_malformed_is_said(lab: Lab) -> None:
    """G7: the one 404."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    plan = await lab.propose(entry)
    other = (await lab.recorder.campaigns.open(OWNER, _campaign()))["id"]
    by = {"sub": OWNER.sub, "kind": "human"}
    decision = {"plan": plan, "decision": "approve", "digest": lab.plans[plan]["digest"]}
    asked = {"id": new_id("rec"), "type": "plan.decided", "campaign": other, "by": by, "body": decision}
    lapsed = {"run": lab.run, "entry": entry, "undoBy": "2026-12-01T12:00:00Z", "how": "quietly"}
    for request, status in (
        (asked, 404),
        ({**asked, "type": "window.lapsed", "body": lapsed}, 404),
        ({**asked, "campaign": lab.campaign, "type": "window.lapsed"}, 422),
        ({**asked, "campaign": lab.campaign, "body": {**decision, "override": ["ent_none"]}}, 422),
        ({**asked, "campaign": lab.campaign, "body": {"plan": plan}}, 422),
        ({**asked, "campaign": "a.b"}, 422),
        ({**asked, "type": "entry.committed"}, 422),
    ):
        with pytest.raises(Problem) as refused:
            await lab.rpc.request(RPC_APPEND, request)
        assert refused.value.status == status, request
    for raw in (b"{", b'{"campaign": NaN}', b'"text"', b""):
        reply = json.loads((await lab.recorder.client.request(RPC_HEADS, raw, timeout=5)).data)
        assert 400 <= reply["problem"]["status"] < 500
    assert (await lab.entry(entry)).status == "committed"


async def test_of_two_decisions_in_the_same_moment_one_is_taken(lab: Lab) -> None:
    """G6."""
    entry = await lab.call("edit", doc_id="d1", title="x")
    plan = await lab.propose(entry)
    both = await asyncio.gather(
        lab.approve(plan, OWNER), lab.approve(plan, APPROVER, decision="reject"), return_exceptions=True
    )
    lost = [answer for answer in both if isinstance(answer, Problem)]
    assert [problem.slug for problem in lost] == ["already-decided"]
    rows = await lab.recorder.pool.fetchval("select count(*) from records where type = 'plan.decided'")
    assert rows == 1


async def test_a_refusal_of_another_service_is_in_the_security_log(lab: Lab) -> None:
    """G7."""
    by = {"sub": "rogue", "kind": "human"}
    await lab.rpc.request(RPC_REFUSED, {"campaign": lab.campaign, "by": by, "what": "acknowledge this review"})
    assert await lab.security() == ["acknowledge this review"]


def _campaign() -> CampaignRequest:
    return CampaignRequest(name="Other")
