"""Tool servers and owners that say what nobody expects: the call happened, so its entry is written, and nobody else waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.calls_lab import Campaign
from tests.recorder_lab import Client, recorder_lab
from tests.servers_lab import deals

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("meta", "field"),
    [
        (
            {"undo": {"kind": "none"}, "effect": {"resource": "crm://" + "y" * 50_000, "version": "v1"}},
            "effect.resource",
        ),
        (
            {"undo": {"kind": "compensate", "compensationToken": "t", "undoBy": "9999-12-31T23:59:59-12:00"}},
            "undo.undoBy",
        ),
    ],
)
async def test_a_call_whose_result_cannot_be_kept_as_told_is_committed_with_what_can_be(
    campaign: Campaign, meta: dict[str, Any], field: str
) -> None:
    """J7, J11: never answered as if nothing had been done."""
    await campaign.policy(operations={"deals/raw": "allow"})
    answered = await campaign.call("raw", {"dealId": "d1", "meta": meta})
    assert answered.status_code == 200, answered.text
    entry = answered.json()["entry"]
    assert (entry["status"], [item["field"] for item in entry["unresolved"]]) == ("committed", [field])


async def test_a_call_whose_answer_the_journal_cannot_keep_is_committed_with_a_note_instead(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J7, J11: the call ran, so nobody hears that nothing was written, and a retry by key does not run it again."""
    await campaign.policy(operations={"deals/quiet": "allow"})
    campaign.deals.put("d1", stage="open")
    monkeypatch.setattr(deals, "_version", lambda found: f"v{found['n']}" + "\x00" * (found["n"] > 1))
    answered = await campaign.call("quiet", {"dealId": "d1", "stage": "won"}, idempotency_key="once")
    assert answered.status_code == 200, answered.text
    assert answered.json()["result"]["structuredContent"] == {"dealId": "d1"}
    entry = await campaign.entry(answered.json()["entry"]["id"])
    assert (entry["status"], entry["undo"]["kind"], entry["effects"]) == ("committed", "unknown", [])
    assert [item["field"] for item in entry["unresolved"]] == ["result"]
    assert "NUL" in entry["unresolved"][0]["reason"] and "could not be kept" in entry["result"]["content"][0]["text"]
    again = await campaign.call("quiet", {"dealId": "d1", "stage": "won"}, idempotency_key="once")
    assert (again.status_code, campaign.deals.effects) == (200, 1), again.text


@pytest.mark.parametrize(
    "wanted",
    [
        {"url": "http://127.0.0.1:1/", "headers": {"X-Key": "schlüssel"}},
        {"url": "http://127.0.0.1:1/", "headers": {"X-Key": "a\r\nX-Other: b"}},
        {"url": "http://127.0.0.1:1/", "headers": {"X Key": "a"}},
        {"url": "http://xn--ß/"},
        {"url": "http://127.0.0.1:1/\x7f"},
    ],
)
async def test_a_tool_server_that_no_request_can_name_is_refused(campaign: Campaign, wanted: dict[str, Any]) -> None:
    """J15: in words, not as a defect."""
    path = f"/v1/campaigns/{campaign.id}/servers/wrong"
    answered = await campaign.lab.client("PUT", path, {"transport": "mcp", **wanted})
    assert answered.status_code == 422, answered.text
    assert "Nothing was" in answered.json()["detail"]


async def test_where_campaigns_do_not_trust_each_other_only_admins_register_tool_servers(campaign: Campaign) -> None:
    """J16: an owner of another campaign neither writes through its tool server nor has its secret sent elsewhere."""
    environ = campaign.lab.environ | {"TAKEBACK_SERVER_ADMINS": "root, olga"}
    async with recorder_lab(environ) as recorder:
        transport = httpx.ASGITransport(recorder.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://recorder", timeout=30) as http:
            client = Client(http, Path(environ["TAKEBACK_KEYS_DIR"]))
            server = {"transport": "nats", "subject": campaign.deals.subject}
            other = await client.ok("POST", "/v1/campaigns", {"name": "other"}, sub="mallory")
            refused = await client("PUT", f"/v1/campaigns/{other['id']}/servers/deals", server, sub="mallory")
            assert (refused.status_code, refused.json()["title"]) == (403, "not authorised")
            taken = await client("PUT", f"/v1/campaigns/{campaign.id}/servers/deals", server, sub="olga")
            assert taken.status_code == 200, taken.text
