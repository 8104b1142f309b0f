"""What an agent that listens is spared."""

from __future__ import annotations

from notifier.feed import Fed
from notifier.hub import seen_by
from takeback import json
from takeback.auth import Caller

AGENT, PERSON = Caller("bot", "agent"), Caller("anna", "human")


def test_an_agent_does_not_hear_why_a_person_is_asked_and_a_person_does() -> None:
    """P10: the reasons are the policy's words."""
    data = {"approval": "apr_1", "why": "the policy asks for crm/update_deal"}
    fed = Fed(1, "approval.requested", json.dumps({"data": data}))
    assert seen_by(fed, PERSON) is fed
    heard = seen_by(fed, AGENT)
    assert heard is not None
    assert json.loads(heard.event)["data"] == {"approval": "apr_1", "why": "A person has to agree."}


def test_an_agent_hears_of_no_policy() -> None:
    """P10, J16."""
    assert seen_by(Fed(1, "policy.changed", b"{}"), AGENT) is None
