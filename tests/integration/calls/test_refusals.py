"""What is refused at the way of a call, with a word for it and nothing written: hostile input, other people's runs."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.integration.calls_lab import Campaign

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_name_that_hides_something_is_refused_wherever_it_is_given(campaign: Campaign) -> None:
    """G7, U2: nobody becomes a member, an agent or a run's principal under a name that looks like another."""
    base, client, name = f"/v1/campaigns/{campaign.id}", campaign.lab.client, "pete\u202e"
    run = {"agent": "bot", "model": "m1", "principal": "pete"}
    for method, path, body in (
        ("PUT", f"{base}/members/{quote(name)}", {"role": "member"}),
        ("PUT", f"{base}/agents/{quote(name)}", {"memory": "no"}),
        ("POST", f"{base}/runs", {**run, "model": name}),
        ("POST", "/v1/campaigns", {"name": name}),
    ):
        refused = await client(method, path, body)
        assert (refused.status_code, "U+202E" in refused.text) == (422, True), refused.text


async def test_a_paused_run_and_a_closed_one_take_no_calls(campaign: Campaign) -> None:
    run = f"/v1/runs/{campaign.run}"
    await campaign.lab.client.ok("POST", f"{run}/pause")
    assert (await campaign.set_stage("won")).json()["title"] == "run paused"
    await campaign.lab.client.ok("POST", f"{run}/resume")
    assert (await campaign.set_stage("won")).status_code == 200
    await campaign.lab.client.ok("POST", f"{run}/close")
    refused = await campaign.set_stage("won")
    assert (refused.status_code, refused.json()["title"]) == (409, "run closed")
    assert campaign.deals.effects == 1


async def test_an_agent_calls_only_in_its_own_runs_with_its_own_operations_for_its_own_principals(
    campaign: Campaign,
) -> None:
    """P10, G7: 403 and a security log entry; a stranger gets the 404 of what does not exist."""
    await campaign.owner("PUT", "agents/other", {"memory": "no"})
    assert (await campaign.set_stage("won", sub="other")).status_code == 403
    await campaign.owner(
        "PUT", "agents/bot", {"memory": "no", "operations": ["deals/read_deal"], "principals": ["pete"]}
    )
    assert (await campaign.set_stage("won")).json()["title"] == "not authorised"
    assert (await campaign.call("read_deal", {"dealId": "d1"}, principal="paula")).status_code == 403
    assert (await campaign.call("read_deal", {"dealId": "d1"})).status_code == 200
    logged = await campaign.owner("GET", "security-log")
    assert [item["what"] for item in logged["items"]] == [
        "call for this principal",
        "use this operation",
        "call in this run",
    ]
    stranger = await campaign.set_stage("won", sub="nobody")
    nothing = await campaign.set_stage("won", run="run_none", sub="nobody")
    assert (stranger.status_code, stranger.content) == (404, nothing.content)


async def test_arguments_that_the_schema_does_not_take_are_refused_by_name(campaign: Campaign) -> None:
    refused = await campaign.call("set_stage", {"dealId": 7})
    assert refused.status_code == 422
    assert {"dealId", ""} >= {item["field"] for item in refused.json()["errors"]}
    assert await campaign.entries() == []


async def test_an_interaction_belongs_to_the_run_that_named_it_first(campaign: Campaign) -> None:
    assert (await campaign.set_stage("won", interaction="turn-9")).status_code == 200
    other = await campaign.open_run()
    refused = await campaign.set_stage("lost", run=other, interaction="turn-9")
    assert (refused.status_code, refused.json()["title"]) == (409, "interaction taken")
    assert campaign.deals.effects == 1


_CALL = b'{"server":"deals","operation":"set_stage","arguments":%s}'


HOSTILE = {
    "ten megabytes": (b'{"server": "' + b"a" * 10_000_000 + b'"}', 413),
    "nested deep": (_CALL % (b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400),
    "nul": (_CALL % rb'{"dealId":"\u0000","stage":"x"}', 400),
    "half a surrogate": (_CALL % rb'{"dealId":"\ud800","stage":"x"}', 400),
    "nan": (_CALL % b'{"dealId":"a","stage":NaN}', 400),
    "a key twice": (_CALL % b'{"dealId":"a","dealId":"b","stage":"x"}', 400),
    "a huge integer": (_CALL % (b'{"dealId":' + b"9" * 400 + b"}"), 400),
    "no object": (b"[1,2]", 422),
    "an unknown member": (b'{"server":"deals","operation":"set_stage","force":true}', 422),
    "a hostile interaction": (b'{"server":"deals","operation":"set_stage","interaction":"a.>"}', 422),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_hostile_input_is_refused_and_nothing_is_written(campaign: Campaign, what: str) -> None:
    body, status = HOSTILE[what]
    answered = await campaign.lab.client("POST", f"/v1/runs/{campaign.run}/calls", body, sub="bot", kind="agent")
    assert answered.status_code in range(400, 500)
    assert answered.status_code == status, answered.text
    assert await campaign.record_types() == ["run.opened"]
    assert campaign.deals.calls == []


@pytest.mark.parametrize("run", ["..%2f..", "a%00b", "a.b", "*", "x" * 65, "%F0%9F%92%A9"])
async def test_hostile_ids_are_the_same_404(campaign: Campaign, run: str) -> None:
    answered = await campaign.lab.client(
        "POST", f"/v1/runs/{run}/calls", {"server": "deals", "operation": "x"}, sub="bot", kind="agent"
    )
    assert answered.status_code == 404
