"""Whoever changes a Run Record is found out, and the first bad record is named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.journal.chain import hash_of
from recorder.journal.record_file import line_of
from recorder.journal.verify import Broken, Verified, verify
from tests.unit.journal.run_records import OTHER, SIGNER, chained, exported

KEY = SIGNER.public_key
BODIES = st.lists(st.binary(min_size=0, max_size=40), min_size=3, max_size=8)


@given(bodies=st.lists(st.binary(max_size=60), min_size=1, max_size=8))
def test_an_untouched_record_verifies_with_the_public_key_alone(bodies: list[bytes]) -> None:
    """J13."""
    outcome = verify(exported(chained(bodies)), KEY)

    assert isinstance(outcome, Verified)
    assert outcome.head["records"] == len(bodies)


@given(bodies=BODIES, data=st.data())
@settings(max_examples=300)
def test_any_changed_byte_is_found_and_its_line_is_named(bodies: list[bytes], data: st.DataObject) -> None:
    """J13."""
    content = exported(chained(bodies))
    position = data.draw(st.integers(0, len(content) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[position]))
    changed = content[:position] + bytes([other]) + content[position + 1 :]

    outcome = verify(changed, KEY)

    assert isinstance(outcome, Broken)
    line = content[:position].count(b"\n") + 1
    assert outcome.line == line


@given(bodies=BODIES, data=st.data())
def test_a_dropped_record_is_named_as_missing(bodies: list[bytes], data: st.DataObject) -> None:
    """J13."""
    records = chained(bodies)
    lines = exported(records).split(b"\n")
    dropped = data.draw(st.integers(0, len(records) - 1))

    outcome = verify(b"\n".join(lines[:dropped] + lines[dropped + 1 :]), KEY)

    assert isinstance(outcome, Broken)
    assert outcome.seq == dropped + 1
    assert "missing" in outcome.what


@given(bodies=BODIES, data=st.data())
def test_swapped_records_are_named_where_the_order_first_breaks(bodies: list[bytes], data: st.DataObject) -> None:
    """J13."""
    records = chained(bodies)
    lines = exported(records).split(b"\n")
    first = data.draw(st.integers(0, len(records) - 2))
    second = data.draw(st.integers(first + 1, len(records) - 1))
    lines[first], lines[second] = lines[second], lines[first]

    outcome = verify(b"\n".join(lines), KEY)

    assert isinstance(outcome, Broken)
    assert (outcome.line, outcome.seq) == (first + 1, first + 1)


@given(bodies=BODIES, data=st.data())
def test_a_record_put_in_is_named_even_when_it_is_chained_well(bodies: list[bytes], data: st.DataObject) -> None:
    """J13."""
    records = chained(bodies)
    lines = exported(records).split(b"\n")
    place = data.draw(st.integers(0, len(records) - 1))
    forged = records[place]._replace(id="rec_forged", body=b"forged")
    forged = forged._replace(hash=hash_of(forged))

    outcome = verify(b"\n".join([*lines[:place], line_of(forged), *lines[place:]]), KEY)

    assert isinstance(outcome, Broken)
    assert (outcome.line, outcome.id) == (place + 1, "rec_forged")


@given(bodies=BODIES, data=st.data())
def test_a_changed_record_with_a_fresh_hash_is_named_and_not_the_one_after_it(
    bodies: list[bytes], data: st.DataObject
) -> None:
    """J13."""
    records = chained(bodies)
    lines = exported(records).split(b"\n")
    place = data.draw(st.integers(0, len(records) - 1))
    forged = records[place]._replace(body=records[place].body + b"!")
    lines[place] = line_of(forged._replace(hash=hash_of(forged)))

    outcome = verify(b"\n".join(lines), KEY)

    assert isinstance(outcome, Broken)
    assert (outcome.line, outcome.seq, outcome.id) == (place + 1, place + 1, records[place].id)


@given(bodies=BODIES, data=st.data())
def test_a_cut_tail_is_named_by_the_first_record_that_is_gone(bodies: list[bytes], data: st.DataObject) -> None:
    """J13."""
    records = chained(bodies)
    lines = exported(records).split(b"\n")
    kept = data.draw(st.integers(0, len(records) - 1))

    outcome = verify(b"\n".join([*lines[:kept], *lines[len(records) :]]), KEY)

    assert isinstance(outcome, Broken)
    assert outcome.seq == kept + 1
    assert "missing" in outcome.what


@given(bodies=BODIES, data=st.data())
def test_a_file_cut_anywhere_does_not_verify(bodies: list[bytes], data: st.DataObject) -> None:
    """J13."""
    content = exported(chained(bodies))

    assert isinstance(verify(content[: data.draw(st.integers(0, len(content) - 1))], KEY), Broken)


def test_a_chain_made_anew_from_the_first_record_does_not_fit_the_signed_head() -> None:
    """J13."""
    genuine, forged = chained([b"1", b"2", b"3"]), chained([b"1", b"2", b"4"])
    head = exported(genuine).split(b"\n")[3]

    outcome = verify(b"\n".join([*(line_of(record) for record in forged), head, b""]), KEY)

    assert isinstance(outcome, Broken)
    assert (outcome.seq, outcome.what) == (3, "its hash is not the one that was signed")


def test_a_record_signed_with_another_key_does_not_verify() -> None:
    """J13."""
    outcome = verify(exported(chained([b"1", b"2"]), OTHER), KEY)

    assert isinstance(outcome, Broken)
    assert outcome.line == 3
    assert "another key" in outcome.what


@pytest.mark.parametrize("mixed", [chained([b"1", b"2"], stream="run_2"), chained([b"1", b"2"], campaign="cmp_2")])
def test_a_record_of_another_stream_or_campaign_is_named(mixed: list) -> None:  # type: ignore[type-arg]
    """J13."""
    lines = exported(chained([b"1", b"2"])).split(b"\n")
    lines[1] = line_of(mixed[1])

    outcome = verify(b"\n".join(lines), KEY)

    assert isinstance(outcome, Broken)
    assert outcome.line == 2
    assert "another" in outcome.what


def test_an_empty_file_is_no_run_record() -> None:
    """J13."""
    assert isinstance(verify(b"", KEY), Broken)


@given(content=st.binary(max_size=300))
def test_arbitrary_bytes_are_answered_and_never_raise(content: bytes) -> None:
    """J13."""
    assert isinstance(verify(content, KEY), Broken)
