"""`takeback verify` and `takeback fsck`, as they are called."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typer.testing import CliRunner

from recorder.reversing.signing import signed
from takeback import json
from takeback.cli import app
from takeback.keys import ensure_keys
from takeback.messages.plan import Receipt, ReversalRecord
from tests.integration.journal_units import journal_on
from tests.integration.test_journal_outbox import write_run
from tests.unit.journal.run_records import SIGNER, chained, exported

RUNNER = CliRunner()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "public.pem"
    file.write_bytes(SIGNER.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return file


def test_verify_says_that_a_record_is_whole(tmp_path: Path, key: Path) -> None:
    """J13: offline, with the public key alone."""
    (tmp_path / "run.jsonl").write_bytes(exported(chained([b"1", b"2"])))

    answer = RUNNER.invoke(app, ["verify", str(tmp_path / "run.jsonl"), "--key", str(key)])

    assert answer.exit_code == 0, answer.output
    assert "2 records of run_1" in answer.output


def test_verify_ends_with_1_and_names_the_first_bad_record(tmp_path: Path, key: Path) -> None:
    """J13."""
    content = exported(chained([b"one", b"two", b"three"]))
    lines = content.split(b"\n")
    (tmp_path / "run.jsonl").write_bytes(b"\n".join([lines[0], *lines[2:]]))

    answer = RUNNER.invoke(app, ["verify", str(tmp_path / "run.jsonl"), "--key", str(key)])

    assert answer.exit_code == 1
    assert "line 2, record 2: it is missing" in answer.output


def test_verify_reads_a_reversal_record_too_and_names_what_was_changed_in_it(tmp_path: Path, key: Path) -> None:
    """G10: who took back what, with what authority, offline."""
    at = "2026-03-01T10:00:00Z"
    receipt = Receipt(entry="ent_1", outcome="reverted", approved_by="olga", authority="owner", at=at)
    unsigned = ReversalRecord(
        id="rvc_1", plan="pln_1", digest="d", campaign="cmp_1", approved_by="olga", authority="owner", reason="misread",
        receipts=[receipt], at=at,
    )  # fmt: skip
    file = tmp_path / "record.json"
    document = signed(unsigned, SIGNER).wire()
    file.write_bytes(json.dumps(document))
    answer = RUNNER.invoke(app, ["verify", str(file), "--key", str(key)])
    assert answer.exit_code == 0, answer.output
    assert "rvc_1 of plan pln_1, as it was signed: 1 reverted; approved by olga (owner)" in answer.output

    file.write_bytes(json.dumps({**document, "approvedBy": "bob", "note": "put in"}))
    answer = RUNNER.invoke(app, ["verify", str(file), "--key", str(key)])
    assert answer.exit_code == 1
    assert "NOT as it was signed. What was changed, added or left away: approvedBy, note" in answer.output

    file.write_bytes(json.dumps({**document, "signature": None}))
    answer = RUNNER.invoke(app, ["verify", str(file), "--key", str(key)])
    assert (answer.exit_code, "not a DSSE envelope" in answer.output) == (1, True)


def test_verify_without_a_file_or_key_says_what_to_name(tmp_path: Path, key: Path) -> None:
    """J13: neither verified nor broken."""
    answer = RUNNER.invoke(app, ["verify", str(tmp_path / "none.jsonl"), "--key", str(key)])

    assert answer.exit_code == 2
    assert "Nothing was verified" in answer.output


def test_verify_says_so_where_a_file_holds_no_public_key(tmp_path: Path) -> None:
    """J13."""
    readme = tmp_path / "README.md"
    readme.write_text("# Takeback")
    answer = RUNNER.invoke(app, ["verify", str(readme), "--key", str(readme)])

    assert answer.exit_code == 2
    assert f"{readme} is not a PEM public key" in answer.output


def test_fsck_on_a_folder_where_nothing_runs_says_how_to_name_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAKEBACK_POSTGRES_URL", raising=False)
    answer = RUNNER.invoke(app, ["fsck", "--data", str(tmp_path)])

    assert answer.exit_code == 2
    assert "name another folder with --data" in answer.output


def test_fsck_is_content_with_a_whole_journal_and_names_what_was_changed(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J13."""
    ensure_keys(tmp_path / "keys")
    monkeypatch.setenv("TAKEBACK_POSTGRES_URL", postgres_url)

    async def fill() -> None:
        async with journal_on(postgres_url) as (journal, _):
            await write_run(journal, "run_1", 2)

    async def tamper() -> None:
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("update recorder.records set body = '{}' where seq = 3")
        await connection.close()

    asyncio.run(fill())
    whole = RUNNER.invoke(app, ["fsck", "--data", str(tmp_path)])
    asyncio.run(tamper())
    changed = RUNNER.invoke(app, ["fsck", "--data", str(tmp_path)])

    assert whole.exit_code == 0, whole.output
    assert changed.exit_code == 1
    assert "record 3 of run_1" in changed.output
