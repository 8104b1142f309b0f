"""The pure parts of the MCP door: messages in, answers out, and what a client carries for us."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers

from recorder.mcp_door import shape
from recorder.mcp_door.asking import States, Waits, elicitation, in_problem, in_words
from recorder.mcp_door.calling import wanted
from recorder.mcp_door.exchange import Exchange, Notice, Rejected, new_session, read
from recorder.mcp_door.shape import Refusal
from takeback import json
from takeback.auth import Caller
from takeback.errors import Problem, unavailable
from takeback.extension import EXTENSION
from takeback.messages.entry import CallRequest

BOT = Caller("bot", "agent")
APPROVAL = {"id": "apr_1", "status": "pending", "asked": [{"sub": "olga"}], "expiresAt": "2999-01-01T00:00:00.000000Z"}
WAITS = Waits({"id": "ent_1", "server": "crm", "operation": "mail", "status": "awaiting_approval"}, APPROVAL, "Why.")
CALL = CallRequest(server="crm", operation="mail", arguments={"to": "x", "n": 1})
STATES = States(b"k" * 32)
NONSENSE: list[Any] = [None, 7, [], {}, ""]
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
results = st.dictionaries(texts.filter(lambda key: key != "_meta"), values, max_size=4)


def _exchange(modern: bool) -> Exchange:
    return Exchange(1, "tools/call", {}, modern, False, False)


@settings(max_examples=40)
@given(results)
def test_a_2025_client_gets_a_result_as_it_came_less_what_only_2026_says(result: dict[str, Any]) -> None:
    """J15."""
    of_2026 = {"resultType": "complete", "_meta": {types.SERVER_INFO_META_KEY: {"name": "x"}}}
    kept = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    assert shape.response(_exchange(False), {**result, **of_2026})["result"] == kept


@settings(max_examples=40)
@given(results)
def test_a_2026_client_gets_a_result_as_it_came_and_hears_who_speaks(result: dict[str, Any]) -> None:
    """J15."""
    shaped = shape.response(_exchange(True), result)["result"]
    assert {key: shaped[key] for key in result if key != "_meta"} == {k: v for k, v in result.items() if k != "_meta"}
    assert shaped["_meta"][types.SERVER_INFO_META_KEY]


@given(st.binary(min_size=32, max_size=32), st.integers(0, 200), st.integers(1, 255))
def test_a_sealed_state_opens_only_unchanged_and_with_the_installations_key(key: bytes, at: int, flip: int) -> None:
    """P6, facts.md: what a client carries is the client's to forge."""
    states = States(key)
    state = states.seal(WAITS, "run_1", BOT, CALL)
    assert states.entry(state, "run_1", BOT, CALL) == "ent_1"
    changed = bytearray(state.encode())
    changed[at % len(changed)] ^= flip
    try:
        forged = changed.decode()
    except UnicodeDecodeError:
        return
    assert states.entry(forged, "run_1", BOT, CALL) is None
    assert STATES.entry(state, "run_1", BOT, CALL) is None or key == b"k" * 32


@pytest.mark.parametrize(
    ("run", "caller", "call"),
    [
        ("run_2", BOT, CALL),
        ("run_1", Caller("bot", "service"), CALL),
        ("run_1", Caller("eve", "agent"), CALL),
        ("run_1", BOT, CALL.model_copy(update={"arguments": {"to": "y", "n": 1}})),
        ("run_1", BOT, CALL.model_copy(update={"operation": "pay"})),
        ("run_1", BOT, CALL.model_copy(update={"agent": "helper"})),
    ],
)
def test_a_state_goes_on_with_the_same_call_of_the_same_caller_alone(
    run: str, caller: Caller, call: CallRequest
) -> None:
    """P6."""
    assert STATES.entry(STATES.seal(WAITS, "run_1", BOT, CALL), run, caller, call) is None


def test_a_state_ends_with_its_approval() -> None:
    """P6."""
    over = Waits(WAITS.entry, {**APPROVAL, "expiresAt": "2020-01-01T00:00:00.000000Z"})
    assert STATES.entry(STATES.seal(over, "run_1", BOT, CALL), "run_1", BOT, CALL) is None
    for nonsense in NONSENSE:
        assert STATES.entry(nonsense, "run_1", BOT, CALL) is None


def test_a_link_is_all_that_a_client_is_asked_to_show() -> None:
    """P6: URL mode, never a form."""
    link = WAITS.link("https://takeback.example/")
    assert link == "https://takeback.example/console/approvals/apr_1"
    for modern in (False, True):
        shown = elicitation(WAITS, link, modern=modern)
        types.ElicitRequestURLParams.model_validate(shown)
        assert shown["mode"] == "url" and "requestedSchema" not in shown
    words = in_words(WAITS, link)
    assert words.result["isError"] and words.result["content"] == [{"type": "text", "text": words.text}]
    assert all(part in words.text for part in ("olga", "apr_1", link, "Why."))


def test_a_refusal_says_what_happened_and_whether_to_try_again() -> None:
    """J3: fail-closed, and clear to an agent."""
    away = in_problem(unavailable("journal-unavailable", "The journal is away. Nothing was forwarded; try again."))
    assert isinstance(away, Refusal) and "Nothing was forwarded; try again" in away.text
    assert away.result["_meta"][EXTENSION] == {"problem": "journal-unavailable", "retryAfterSeconds": 1}
    own = {"content": [{"type": "text", "text": "locked"}], "isError": True, "structuredContent": {"x": 1}}
    failed = Problem(502, "tool-failed", "…", entry={"id": "ent_1", "status": "failed"}, result=own)
    assert in_problem(failed) == own, "the tool's own error is the tool's own"
    unheard = Problem(502, "tool-failed", "…", entry={"id": "ent_1", "status": "failed"}, result=None)
    words = in_problem(unheard)
    assert isinstance(words, Refusal) and words.told["entry"] == "ent_1"


def test_a_session_says_what_its_client_can_do_and_nothing_of_who_it_is() -> None:
    """J17: any replica reads it."""
    shows: dict[str, Any] = {"elicitation": {"url": {}}}
    cases: list[tuple[dict[str, Any], bool]] = [(shows, True), ({"elicitation": {}}, False), ({}, False)]
    for capabilities, links in cases:
        session = new_session({"capabilities": capabilities})
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        message = read(body, Headers({"mcp-session-id": session}))
        assert isinstance(message, Exchange) and message.links is links and not message.modern


@given(values)
def test_a_body_that_is_no_message_is_rejected_and_never_an_error_of_ours(value: Any) -> None:
    """contract.md: bad input gets an answer that says so."""
    for body in (value, {"jsonrpc": "2.0", "method": value, "id": value, "params": value}):
        try:
            message = read(json.dumps(body), Headers({}))
        except Rejected as rejected:
            assert rejected.status == 400
        else:
            assert isinstance(message, (Exchange, Notice))


def test_what_a_client_says_of_its_call_goes_with_it_and_the_rest_of_meta_does_not() -> None:
    """contract.md: interaction, uses, dependsOn, agent and key in `_meta`; nothing else of it reaches the call."""
    said = {"interaction": "i1", "uses": ["a://b"], "dependsOn": ["ent_0"], "agent": "helper", "idempotencyKey": "k"}
    params = {"arguments": {"to": "x"}, "_meta": {EXTENSION: {**said, "server": "evil", "undo": {}}, "other": 1}}
    made = wanted("run_1", BOT, "crm", "mail", params)
    assert (made.request.server, made.request.interaction, made.request.agent) == ("crm", "i1", "helper")
    assert (made.request.uses, made.request.depends_on) == (["a://b"], ["ent_0"])
    assert made.key is not None and (made.key.sub, made.key.path, made.key.key) == ("bot", "/mcp/runs/run_1", "k")
    for key in ("", "x" * 256, "a\nb", 7):
        with pytest.raises(Problem):
            wanted("run_1", BOT, "crm", "mail", {"_meta": {EXTENSION: {"idempotencyKey": key}}})
