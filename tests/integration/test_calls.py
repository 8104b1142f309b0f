"""The way of a call, on real servers: recorded before it runs, forwarded once, concluded with what it did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio

from recorder.kept import KeptAnswers
from tests.integration.calls_lab import Campaign, Lab, shared_lab
from tests.servers import Backend, Databases, Server
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(
    servers: Backend, migrated_databases: Databases, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Lab]:
    async with shared_lab(servers, migrated_databases, valkey_server.url, tmp_path_factory.mktemp("calls")) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(lab: Lab) -> Campaign:
    return await lab.campaign(await lab.deals())


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


async def test_an_annotation_hint_makes_no_read(campaign: Campaign) -> None:
    """P1, J9: what is not declared is unknown, and is asked before it runs."""
    answered = await campaign.call("hinted_read", {"dealId": "d1"})
    assert answered.status_code == 202
    assert answered.json()["entry"]["kind"] == "call"
    assert campaign.deals.effects == 0


@pytest.mark.parametrize("operation", ["send_mail", "mystery", "click", "unversioned"])
async def test_what_cannot_surely_be_taken_back_is_asked_first(campaign: Campaign, operation: str) -> None:
    """P1, P2, J9, J10, P10: none, unknown, through a user interface, without a version; the agent hears no rule."""
    arguments = {"to": "x@example.org"} if operation == "send_mail" else {"dealId": "d1"}
    answered = await campaign.call(operation, arguments)
    assert answered.status_code == 202, answered.text
    assert answered.json()["why"] == "A person has to agree before this call is made."
    assert answered.json()["approval"]["status"] == "pending"
    assert campaign.deals.effects == 0


async def test_policy_overrides_decide_for_later_calls_only(campaign: Campaign) -> None:
    """J9, P1: an override lifts later calls; the entry from before stays as it was."""
    before = (await campaign.call("mystery", {"dealId": "d1"})).json()["entry"]
    await campaign.policy(operations={"deals/mystery": "allow", "deals/set_stage": "deny"})
    assert (await campaign.call("mystery", {"dealId": "d1"})).status_code == 200
    assert (await campaign.entry(before["id"]))["status"] == "awaiting_approval"
    denied = await campaign.set_stage("won")
    assert (denied.status_code, denied.json()["title"]) == (403, "denied")
    assert "policy" not in denied.json()["detail"]
    assert (await campaign.entry(denied.json()["entry"]["id"]))["status"] == "denied"
    assert campaign.deals.effects == 1


async def test_a_window_shorter_than_the_policy_wants_is_asked(campaign: Campaign) -> None:
    """P3."""
    assert (await campaign.call("brief", {"dealId": "d1"})).status_code == 200
    await campaign.policy(minWindowSeconds=3600)
    assert (await campaign.call("brief", {"dealId": "d1"})).status_code == 202


async def test_caps_on_money_are_refused_while_nothing_holds_calls_to_them(campaign: Campaign) -> None:
    """P5 is to come: a cap that is kept and not held to would be trusted."""
    base, client = f"/v1/campaigns/{campaign.id}", campaign.lab.client
    policy = await client("PUT", f"{base}/policy", {"money": {"currency": "EUR", "perRun": "100"}})
    wanted = {"agent": "bot", "model": "m1", "principal": "pete", "moneyCap": "10"}
    run = await client("POST", f"{base}/runs", wanted, sub="bot", kind="agent")
    for refused in (policy, run):
        assert (refused.status_code, refused.json()["type"].rsplit("/", 1)[-1]) == (422, "no-caps")


async def test_settings_beyond_all_bounds_are_refused_and_nothing_is_kept_of_them(campaign: Campaign) -> None:
    """P3, P5, N3: with a word for what is too much."""
    base, client = f"/v1/campaigns/{campaign.id}", campaign.lab.client
    before = (await client("GET", f"{base}/policy")).json()
    reminders = {"leadSeconds": 10**12, "escalateAfterSeconds": 60, "escalateTo": "pete"}
    for wrong in ({"reminders": reminders}, {"money": {"currency": "EUR", "period": "soon"}}):
        refused = await client("PUT", f"{base}/policy", wrong)
        assert (refused.status_code, refused.json()["type"].rsplit("/", 1)[-1]) == (422, "invalid")
        assert "Nothing was changed" in refused.json()["detail"]
    assert (await client("GET", f"{base}/policy")).json() == before


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


async def test_an_operation_is_asked_until_its_undo_was_exercised(campaign: Campaign) -> None:
    """P4."""
    await campaign.policy(requireExercised=True)
    assert (await campaign.set_stage("won")).status_code == 202


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


@pytest.mark.parametrize(("rule", "status"), [(None, 202), ("proceed", 200), ("deny", 403)])
async def test_a_snapshot_that_cannot_be_read_is_for_policy_to_decide(
    campaign: Campaign, rule: str | None, status: int
) -> None:
    """J4: it asks by default; where it goes on, the entry says why it has no undo."""
    campaign.deals.readable = False
    if rule is not None:
        await campaign.policy(onSnapshotFailure=rule)
    answered = await campaign.call("quiet", {"dealId": "d1", "stage": "won"})
    assert answered.status_code == status, answered.text
    entry = await campaign.entry(answered.json()["entry"]["id"])
    assert entry["snapshot"] is None if rule == "deny" else "failure" in entry["snapshot"]
    if rule == "proceed":
        assert entry["undo"]["kind"] == "unknown"
        assert "could not be read" in entry["undo"]["why"]


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


async def test_a_changed_definition_is_asked(campaign: Campaign) -> None:
    """J15: the pin that the owner saw no longer holds."""
    assert (await campaign.set_stage("won")).status_code == 200
    campaign.deals.redeclare("set_stage", tier="low")

    async def asked() -> bool:
        return (await campaign.set_stage("won")).status_code == 202

    await eventually(asked)


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


async def test_a_call_asks_when_nobody_who_may_take_it_back_is_on_duty_in_time(campaign: Campaign) -> None:
    """P3: the principal's calendar, else an approver's or an owner's; a member without authority does not count."""
    campaign.deals.put("d1", stage="new")
    weekly = {day: [["00:00", "24:00"]] for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")}
    never = {"zone": "Europe/Berlin", "weekly": {}}
    always = {"zone": "Europe/Berlin", "weekly": weekly}
    assert (await campaign.set_stage("a")).status_code == 200  # nobody has said when they are on duty
    await campaign.owner("PUT", "calendars/pete", never)
    asked = await campaign.set_stage("b")
    assert asked.status_code == 202, asked.text
    await campaign.owner("PUT", "calendars/paula", always)
    assert (await campaign.set_stage("b")).status_code == 202
    await campaign.owner("PUT", "calendars/approver", always)
    assert (await campaign.set_stage("c")).status_code == 200
    away = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:t\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTART;VALUE=DATE:20000101\r\n"
    away += "DTEND;VALUE=DATE:21000101\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    await campaign.owner("PUT", "calendars/approver", {**always, "absences": away})
    assert (await campaign.set_stage("d")).status_code == 202


async def test_a_calendar_that_cannot_be_used_is_refused_and_says_where(campaign: Campaign) -> None:
    """P3: nothing is written."""
    good = {"zone": "Europe/Berlin", "weekly": {"mon": [["09:00", "17:00"]]}, "holidays": "DE-BY"}
    for wrong, where in (
        ({"zone": "Europe/Nowhere"}, "zone"),
        ({"weekly": {"mon": [["9", "17:00"]]}}, "weekly.mon"),
        ({"holidays": "XX"}, "holidays"),
        ({"absences": "file:///etc/passwd"}, "absences"),
        ({"absences": "BEGIN:VCALENDAR"}, "absences"),
    ):
        refused = await campaign.lab.client(
            "PUT", f"/v1/campaigns/{campaign.id}/calendars/pete", good | wrong, sub="pete"
        )
        assert refused.status_code == 422, refused.text
        assert refused.json()["detail"].startswith(where)
    assert (await campaign.lab.client.ok("PUT", f"/v1/campaigns/{campaign.id}/calendars/pete", good, sub="pete"))[
        "zone"
    ]


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
