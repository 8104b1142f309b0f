"""Receipts and the Reversal Record."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from recorder.journal.dsse import BadSignature, Signer
from recorder.reversing.outcome import Judgement, Part
from recorder.reversing.receipts import Word, plain_receipt, receipt_of, reversal_record, step_id
from recorder.reversing.signing import not_as_signed, signed
from takeback.messages.plan import ReversalRecord
from tests.unit.recorder_reversing.made import NOW, decided, seen, step

WORD = Word("ann", "owner", NOW)


def test_a_receipt_says_the_versions_expected_before_and_after() -> None:
    """G10."""
    part = Part("a://1", "2", seen({}, "2"), seen({}, "3"), [], False)
    receipt = receipt_of("ent_1", "ent_2", Judgement("reverted"), [part], WORD, side_effects=["told"])
    assert (receipt.expected_version, receipt.version_before, receipt.version_after) == ("2", "2", "3")
    assert receipt.parts is None
    assert receipt.side_effects == ["told"]


def test_an_entry_with_several_records_has_a_part_for_each_with_its_own_outcome() -> None:
    """G10."""
    good = Part("a://1", "2", seen({}, "2"), seen({}, "3"), [], False)
    bad = Part("a://2", "2", seen({}, "2"), seen({}, "2"), ["x"], True)
    receipt = receipt_of("ent_1", "ent_2", Judgement("unverified", "why"), [good, bad], WORD)
    assert [part.outcome for part in receipt.parts or ()] == ["reverted", "unverified"]
    moved = Part("a://2", "2", seen({}, "9"), seen({}, "9"), None, True)
    receipt = receipt_of("ent_1", None, Judgement("conflict", "why"), [good, moved], WORD)
    assert [part.outcome for part in receipt.parts or ()] == ["blocked", "conflict"]


def test_the_record_keeps_the_order_of_the_plan_and_its_signature_covers_every_word() -> None:
    """G10."""
    plan = decided(step("ent_2"), step("ent_1"), leave_out=frozenset({"ent_1"}), reason="why", category="misread")
    receipts = [plain_receipt("ent_2", "failed", WORD, "x"), plain_receipt("ent_1", "left_out", WORD, None)]
    key = Ed25519PrivateKey.generate()
    record = signed(reversal_record(plan, "cmp_1", receipts, {"ent_2": "owner"}, NOW), Signer(key))
    assert record.left_out == ["ent_1"]
    assert record.authority == "owner"
    told = ReversalRecord.model_validate(record.wire()).wire()
    assert not_as_signed(told, key.public_key()) == []
    receipt = {**told["receipts"][0], "note": "put in"}
    for changed in ({"reason": "other"}, {"receipts": [receipt]}, {"approvedBy": "bob"}, {"note": "put in"}):
        assert not_as_signed({**told, **changed}, key.public_key()) == list(changed)
    assert not_as_signed({name: told[name] for name in told if name != "leftOut"}, key.public_key()) == ["leftOut"]
    for document, by in (({**told, "signature": None}, key), (told, Ed25519PrivateKey.generate())):
        with pytest.raises(BadSignature):
            not_as_signed(document, by.public_key())


def test_the_first_receipt_of_a_step_has_one_id_whoever_writes_it() -> None:
    """G9."""
    assert step_id("pln_1", "ent_1") == step_id("pln_1", "ent_1") != step_id("pln_1", "ent_2")
