"""What policy says of a call before it runs: by what can surely be taken back, by its own rules, by who is on duty."""

from __future__ import annotations

import pytest

from tests.integration.calls_lab import Campaign
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


async def test_an_operation_is_asked_until_its_undo_was_exercised(campaign: Campaign) -> None:
    """P4."""
    await campaign.policy(requireExercised=True)
    assert (await campaign.set_stage("won")).status_code == 202


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


async def test_a_call_is_stopped_by_the_policy_of_now_and_not_by_one_that_its_run_is_remembered_with(
    campaign: Campaign,
) -> None:
    """J4, P1: what stops a call that did not look is decided again after a look."""
    await campaign.policy(onSnapshotFailure="deny")
    for stage in ("a", "b"):
        assert (await campaign.call("quiet", {"dealId": "d1", "stage": stage})).status_code == 200
    campaign.deals.readable = False
    await campaign.policy(onSnapshotFailure="proceed")
    answered = await campaign.call("quiet", {"dealId": "d1", "stage": "won"})
    assert answered.status_code == 200, answered.text


async def test_a_changed_definition_is_asked(campaign: Campaign) -> None:
    """J15: the pin that the owner saw no longer holds."""
    assert (await campaign.set_stage("won")).status_code == 200
    campaign.deals.redeclare("set_stage", tier="low")

    async def asked() -> bool:
        return (await campaign.set_stage("won")).status_code == 202

    await eventually(asked)


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
