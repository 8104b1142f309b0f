"""What is secret is sealed inside the record, what leaves is redacted, what may link two calls is hashed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.journal.chain import Record
from recorder.journal.events_of import document_of, public_view
from recorder.journal.matchable import matchable_values
from recorder.journal.vault import CampaignKeys, SealBroken
from takeback import json
from takeback.messages.events import Event

KEYS = CampaignKeys("cmp_1", b"s" * 32, b"m" * 32)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcdef"), inner, max_size=4),
    max_leaves=15,
)


@given(value=JSON)
def test_a_sealed_value_opens_in_its_place_only(value: Any) -> None:
    """J18."""
    sealed = KEYS.seal("ent_1", "undo.compensationToken", value)

    assert KEYS.unseal("ent_1", "undo.compensationToken", sealed) == value
    others = [
        (KEYS, "ent_2", "undo.compensationToken"),
        (KEYS, "ent_1", "arguments.token"),
        (CampaignKeys("cmp_2", KEYS.sealing, KEYS.matching), "ent_1", "undo.compensationToken"),
        (CampaignKeys("cmp_1", b"t" * 32, KEYS.matching), "ent_1", "undo.compensationToken"),
    ]
    for keys, entry, path in others:
        with pytest.raises(SealBroken):
            keys.unseal(entry, path, sealed)


@given(value=JSON, fields=st.sets(st.sampled_from("abcdef")))
def test_secret_fields_are_sealed_at_any_depth_and_open_again(value: Any, fields: set[str]) -> None:
    """J18."""

    def open_members(item: Any) -> list[Any]:
        if isinstance(item, dict):
            found = [inner for key, inner in item.items() if key in fields and inner is not None]
            return found + [deep for key, inner in item.items() if key not in fields for deep in open_members(inner)]
        return [deep for inner in item for deep in open_members(inner)] if isinstance(item, list) else []

    sealed = KEYS.seal_fields("ent_1", "arguments", value, fields)

    assert all(set(member) == {"sealed"} for member in open_members(sealed))
    assert KEYS.unseal_fields("ent_1", "arguments", sealed) == value


def test_a_callers_own_value_that_looks_sealed_stays_as_it_is() -> None:
    """J18: what does not open was never ours."""
    value = {"card": {"sealed": "not ours"}}

    assert KEYS.unseal_fields("ent_1", "arguments", value) == value


def test_equal_telling_values_have_equal_hashes_in_their_campaign_only() -> None:
    """G1."""
    other = CampaignKeys("cmp_2", b"s" * 32, b"n" * 32)
    one = KEYS.matchables({"deal": "D-881", "amount": 12000})
    two = KEYS.matchables(["12000", {"id": " D-881 "}])

    assert len(one) == 2
    assert sorted(one) == sorted(two)
    assert set(one).isdisjoint(other.matchables({"deal": "D-881", "amount": 12000}))


@pytest.mark.parametrize(
    "value",
    [
        1,
        999,
        -12,
        True,
        None,
        1.5,
        "",
        "abc",
        "true",
        "None",
        "closed",
        "High",
        "   ",
        "----",
        "12",
        "1.20",
        "x" * 201,
        [],
    ],
)
def test_equal_small_values_link_nothing(value: Any) -> None:
    """G1."""
    assert matchable_values({"field": value}) == []


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (1000, "1000"),
        (1000.0, "1000"),
        ("2026-11-30", "2026-11-30"),
        ("ann@example.org", "ann@example.org"),
        ("D-881", "D-881"),
    ],
)
def test_telling_values_are_found(value: Any, found: str) -> None:
    """G1."""
    assert matchable_values({"deep": [{"field": value}, value]}) == [found]


def record(body: dict[str, Any], **more: Any) -> Record:
    return Record(
        stream="run_1",
        seq=3,
        id="rec_3",
        campaign="cmp_1",
        type="entry.committed",
        at=datetime(2026, 11, 30, 12, 0, 0, 5, tzinfo=UTC),
        previous_hash=b"\1" * 32,
        hash=b"\2" * 32,
        body=json.dumps(body),
        entry="ent_1",
        after=1,
        published=True,
        **more,
    )


def test_an_event_carries_no_secret_and_no_internals() -> None:
    """J18: the token is gone, a sealed field says only that it is sealed."""
    document = document_of(
        record(
            {
                "internal": {"serialKey": "k"},
                "host": {"uses": []},
                "entry": {
                    "id": "ent_1",
                    "status": "committed",
                    "arguments": {"card": KEYS.seal("ent_1", "arguments.card", "4111"), "note": ["x"]},
                    "undo": {"kind": "compensate", "compensationToken": KEYS.seal("ent_1", "t", "tok")},
                },
            }
        )
    )

    event = Event.model_validate(document)
    assert "internal" not in event.data
    assert event.data["entry"]["arguments"] == {"card": {"sealed": True}, "note": ["x"]}
    assert event.data["entry"]["undo"] == {"kind": "compensate"}


def test_an_event_says_where_its_record_stands() -> None:
    """J13."""
    document = document_of(record({"entry": {"id": "ent_1", "status": "committed"}}))

    assert document["type"] == "io.github.takeback.entry.committed"
    assert (document["id"], document["subject"], document["time"]) == ("rec_3", "run_1", "2026-11-30T12:00:00.000005Z")
    assert {name: document["data"][name] for name in ("stream", "seq", "after", "hash", "previousHash")} == {
        "stream": "run_1",
        "seq": 3,
        "after": 1,
        "hash": "02" * 32,
        "previousHash": "01" * 32,
    }


@pytest.mark.parametrize(
    ("status", "label", "added"),
    [
        ("pending", 2, {"label": "e2", "createdAt": "2026-11-30T12:00:00.000005Z"}),
        ("committed", None, {"concludedAt": "2026-11-30T12:00:00.000005Z"}),
        (
            "committed",
            2,
            {
                "label": "e2",
                "createdAt": "2026-11-30T12:00:00.000005Z",
                "concludedAt": "2026-11-30T12:00:00.000005Z",
            },
        ),
    ],
)
def test_what_only_the_database_knew_is_filled_in(status: str, label: int | None, added: dict[str, str]) -> None:
    """J5."""
    entry = {"id": "ent_1", "status": status}

    assert document_of(record({"entry": entry}, label=label))["data"]["entry"] == {**entry, **added}


@pytest.mark.parametrize(
    "result",
    [{"n": 1}, {"compensationToken": "t1"}, {"note": {"sealed": "c2VjcmV0"}}, '{"sealed": "as text"}'],
    ids=str,
)
def test_an_event_shows_no_token_and_nothing_sealed_wherever_it_stands(result: object) -> None:
    """J18: with the undo's own token as the one secret, and with others beside it."""
    undo = {"kind": "compensate", "compensationToken": KEYS.seal("ent_1", "undo.compensationToken", "t1")}
    body = {"entry": {"id": "ent_1", "status": "committed", "undo": undo, "result": result}, "internal": {"pin": "p"}}
    at = datetime(2026, 11, 30, tzinfo=UTC)
    record = Record(
        "run_1", 1, "rec_1", "cmp_1", "entry.committed", at, bytes(32), bytes(32), json.dumps(body), "ent_1"
    )
    data = document_of(record)["data"]
    assert "internal" not in data
    assert data["entry"]["undo"] == {"kind": "compensate"}
    assert data["entry"]["result"] == public_view(body)["entry"]["result"]
