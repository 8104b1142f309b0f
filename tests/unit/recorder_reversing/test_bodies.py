"""What another recorder reads to go on with a reversal, and what the entries say after it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.journal import CampaignKeys, StoredEntry
from recorder.reversing.bodies import (
    Claim,
    claim_of,
    concluded_body,
    restored_body,
    reversal_body,
    reverted_body,
)
from recorder.reversing.work import Expected
from takeback import json
from takeback.extension import Observation, Remap
from tests.unit.recorder_reversing.made import NOW, entry, records, seen

KEYS = CampaignKeys("cmp_1", b"k" * 32, b"m" * 32)
versions = st.none() | st.text("0123456789", min_size=1, max_size=3)
observations = st.builds(seen, st.none() | records, versions)


def stored(body: dict[str, Any]) -> StoredEntry:
    """The entry as the journal gives it back after *body* was its last record."""
    kept = json.loads(json.dumps(body))
    known = kept["entry"]
    return StoredEntry(
        known["id"], known["run"], known["campaign"], known["status"], "cmp_1", True, known["kind"],
        known.get("reverts"), 1, 1, kept, None, NOW, None,
    )  # fmt: skip


def original(secret: dict[str, Any] | None = None) -> StoredEntry:
    wire = entry().wire()
    if secret is not None:
        wire["effects"][0]["before"]["fields"] |= {
            name: KEYS.seal("ent_1", "x", value) for name, value in secret.items()
        }
    return stored({"entry": wire, "host": {}, "matchable": {}, "resources": []})


def claim(before: dict[str, Observation], **changed: Any) -> Claim:
    known: dict[str, Any] = {
        "reversal": "ent_2", "original": "ent_1", "plan": "pln_1", "approved_by": "ann", "authority": "owner",
        "if_version": "2", "force": False, "fields": None, "before": before, "reason": "why",
        "expected": {name: Expected("2") for name in before},
    }  # fmt: skip
    return Claim(**{**known, **changed})


@given(
    st.dictionaries(st.sampled_from(["a://1", "a://2"]), observations),
    st.booleans(),
    st.none() | st.lists(st.sampled_from("abc"), min_size=1, unique=True),
    versions,
    st.sets(st.sampled_from("abcde")),
)
def test_a_claim_reads_as_it_was_written(
    before: dict[str, Observation], force: bool, fields: list[str] | None, version: str | None, secret: set[str]
) -> None:
    """G9, J18: after a crash the body is all that there is, with its secrets sealed."""
    made = claim(before, force=force, fields=fields, if_version=version)
    body = reversal_body(original(dict.fromkeys(secret, "hush")), made, KEYS)
    again = claim_of(stored(body), KEYS)
    assert again.arguments() == made.arguments()
    assert again.expected == made.expected
    assert (again.plan, again.approved_by, again.authority, again.reason) == ("pln_1", "ann", "owner", "why")
    for name, look in before.items():
        assert (again.before[name].exists, again.before[name].version) == (look.exists, look.version)
        assert (again.before[name].fields or {}) == (look.fields or {})
    for effect in body["entry"]["effects"]:
        for name, value in ((effect["before"] or {}).get("fields") or {}).items():
            assert name not in secret or value is None or set(value) == {"sealed"}


def test_a_reversal_says_what_it_really_did_under_the_name_that_the_record_has_now() -> None:
    """S12, design: ids that change are mapped."""
    made = claim({"a://1": seen(None, None)})
    pending = stored(reversal_body(original(), made, KEYS))
    body = concluded_body(
        pending, made, "committed", KEYS, after={"a://1": seen({"stage": "open"}, "1")}, undo=None,
        remaps=[Remap(from_="a://1", to="a://9")], side_effects=["told"], detail=None,
    )  # fmt: skip
    (effect,) = body["entry"]["effects"]
    assert (effect["resource"], effect["before"], effect["version"]) == ("a://9", None, "1")
    assert effect["changes"] == [{"field": "stage", "old": None, "new": "open"}]
    assert {item["resource"] for item in body["resources"]} == {"a://1", "a://9"}
    assert body["remaps"] == [{"from": "a://1", "to": "a://9"}]
    assert body["entry"]["undo"]["kind"] == "unknown"


def test_a_restored_entry_forgets_who_took_it_back_and_stands_at_the_version_that_this_left() -> None:
    """S12."""
    made = claim({"crm://deal/1": seen({"stage": "won"}, "2")})
    taken = stored(reverted_body(original(), made, "ent_2", NOW))
    assert taken.body["entry"]["revertedBy"] == "ent_2"
    back = restored_body(taken, "pln_2", {"crm://deal/1": "4"}, None)["entry"]
    assert (back["status"], back["revertedBy"], back["revertedByPerson"]) == ("committed", None, None)
    assert (back["effect"]["version"], back["undo"]["ifVersion"]) == ("4", "4")
    offered = {"kind": "compensate", "ifVersion": "4", "compensationToken": {"sealed": "x"}}
    assert restored_body(taken, "pln_2", {"crm://deal/1": "4"}, offered)["entry"]["undo"] == offered
