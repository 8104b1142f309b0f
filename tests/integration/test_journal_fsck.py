"""fsck, checkpoints and export find what was done to the database behind the journal's back (J13)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from recorder.journal.checkpoints import CheckpointBroken, Checkpoints
from recorder.journal.dsse import public_key
from recorder.journal.export import Exporter
from recorder.journal.fsck import fsck
from recorder.journal.verify import Verified, verify
from takeback.errors import Problem
from takeback.keys import ensure_keys
from tests.integration.journal_units import change, journal_on, opened
from tests.integration.test_journal_outbox import write_run

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    ensure_keys(folder)
    return folder


async def differences(pool: asyncpg.Pool, checkpoints: Checkpoints | None = None) -> list[str]:
    return [str(found) async for found in fsck(pool, checkpoints.streams() if checkpoints else None)]


@pytest.mark.parametrize(
    ("tampering", "named"),
    [
        ("update recorder.records set body = '{}' where seq = 2", "record 2 of run_1"),
        ("update recorder.records set body = 'x' where seq = 5", "record 5 of run_1"),
        ("update recorder.records set at = at + interval '1 us' where seq = 3", "record 3 of run_1"),
        ("update recorder.records set type = 'entry.failed' where seq = 3", "record 3 of run_1"),
        ("update recorder.records set after = 2 where seq = 3", "record 3 of run_1"),
        ("update recorder.records set label = 7 where seq = 2", "record 2 of run_1"),
        ("delete from recorder.records where seq = 2", "record 2 of run_1"),
        ("delete from recorder.records where seq = 5", "stream run_1: seq is 5, its records say 4"),
        ("delete from recorder.records", "stream run_1: it has a row and no records"),
        ("update recorder.streams set status = 'closed'", "stream run_1: status is closed, its records say open"),
        ("update recorder.streams set published_seq = 4", "stream run_1: published_seq is 4, its records say 5"),
        ("delete from recorder.streams", "stream run_1: it has records and no row"),
        ("update recorder.entries set status = 'failed' where label = 1", "entry ent_run_1_0 of run_1: status"),
        ("update recorder.entries set view = '{}' where label = 2", "entry ent_run_1_1 of run_1: view"),
        ("update recorder.entries set principal = 'eve' where label = 1", "entry ent_run_1_0 of run_1: principal"),
        ("delete from recorder.entries where label = 1", "entry ent_run_1_0 of run_1: it has records and no row"),
        ("update recorder.entry_resources set resource = 'x'", "entry ent_run_1_0 of run_1: resource"),
        ("insert into recorder.outbox values ('rec_x', 'run_1', 2, now())", "outbox rec_x"),
    ],
)
async def test_fsck_names_what_was_changed(postgres_url: str, tampering: str, named: str) -> None:
    """J13."""
    admin = await asyncpg.connect(postgres_url)
    async with journal_on(postgres_url) as (journal, pool):
        await write_run(journal, "run_1", 2)
        before = await differences(pool)
        await admin.execute(tampering)
        after = await differences(pool)
    await admin.close()

    assert before == []
    assert named in after[0], after


async def test_the_recorders_own_role_cannot_rewrite_the_journal(postgres_url: str) -> None:
    """J13: and it sees no other service's tables."""
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        for statement in (
            "update records set body = '{}'",
            "delete from records",
            "truncate records",
            "update records_default set body = '{}'",
            "delete from security_log",
            "drop table entries",
            "alter table records add column more text",
            "create table mine (a text)",
            "delete from entries",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await pool.execute(statement)
        month = await pool.fetchval(
            "select c.relname from pg_class c join pg_inherits i on i.inhrelid = c.oid "
            "where i.inhparent = 'records'::regclass "
            "and c.relname <> 'records_default' limit 1"
        )
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await pool.execute(f"delete from {month}")
        others = await pool.fetchval(
            "select count(*) from information_schema.role_table_grants "
            "where grantee = 'takeback_recorder' and table_schema in ('planner', 'notifier')"
        )
    assert others == 0


async def exported(exporter: Exporter, stream: str) -> bytes:
    return b"".join([line async for line in await exporter.export(stream)])


async def test_an_exported_run_record_verifies_offline_with_the_public_key(postgres_url: str, keys: Path) -> None:
    """J13: open or closed, signed anew at each export."""
    async with journal_on(postgres_url) as (journal, pool):
        exporter = Exporter(pool, Checkpoints.beside(keys))
        await write_run(journal, "run_1", 600)
        first = verify(await exported(exporter, "run_1"), public_key(keys / "signing_public.pem"))
        await journal.append(change("pending", entry="ent_last", run="run_1"))
        second = verify(await exported(exporter, "run_1"), public_key(keys / "signing_public.pem"))

    assert isinstance(first, Verified)
    assert isinstance(second, Verified)
    assert (first.head["records"], second.head["records"]) == (1201, 1202)
    assert first.head["closed"] is False


@pytest.mark.parametrize(
    "tampering",
    [
        "delete from recorder.records where seq > 2; update recorder.streams s set seq = 2, hash = r.hash "
        "from recorder.records r where r.stream = s.stream and r.seq = 2",
        "delete from recorder.records; delete from recorder.streams",
    ],
)
async def test_a_cut_tail_or_a_removed_run_is_not_signed_again(postgres_url: str, keys: Path, tampering: str) -> None:
    """J13: the checkpoint outside the database remembers."""
    admin = await asyncpg.connect(postgres_url)
    async with journal_on(postgres_url) as (journal, pool):
        checkpoints = Checkpoints.beside(keys)
        exporter = Exporter(pool, checkpoints)
        await write_run(journal, "run_1", 2)
        assert await exporter.checkpoint() == 1
        assert await exporter.checkpoint() == 0
        await admin.execute(tampering)
        with pytest.raises(Problem) as refused:
            await exported(exporter, "run_1")
        found = await differences(pool, Checkpoints.beside(keys))
    await admin.close()

    assert (refused.value.status, refused.value.slug) == (409, "export-refused")
    assert "record 5 of run_1" in refused.value.detail
    assert any("the checkpoint of" in difference for difference in found)


async def test_a_stream_that_nobody_knows_is_not_found(postgres_url: str, keys: Path) -> None:
    """The one 404."""
    async with journal_on(postgres_url) as (_, pool):
        with pytest.raises(Problem) as refused:
            await Exporter(pool, Checkpoints.beside(keys)).export("run_9")

    assert refused.value.status == 404


@pytest.mark.parametrize(
    "tampering",
    [
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: [lines[1], lines[0], lines[2]],
        lambda lines: lines[1:],
        lambda lines: [lines[0].replace(b'"payload":"e', b'"payload":"f'), *lines[1:]],
        lambda lines: [*lines, b"nonsense\n"],
    ],
)
def test_a_changed_checkpoint_file_is_named(keys: Path, tampering: Callable[[list[bytes]], list[bytes]]) -> None:
    """J13."""
    checkpoints = Checkpoints.beside(keys)
    for seq in (1, 2, 3):
        assert checkpoints.add([("run_1", seq, f"{seq:064x}"), ("run_2", 1, "0" * 64)], NOW) == (2 if seq == 1 else 1)
    newest = Checkpoints.beside(keys).newest("run_1")
    file = keys.parent / "checkpoints" / "heads.jsonl"
    file.write_bytes(b"".join(tampering(file.read_bytes().splitlines(keepends=True))))

    assert newest is not None
    assert newest.seq == 3
    with pytest.raises(CheckpointBroken, match=r"heads\.jsonl"):
        Checkpoints.beside(keys).newest("run_1")


def test_recorders_share_one_checkpoint_file(keys: Path) -> None:
    """J17."""
    one, two = Checkpoints.beside(keys), Checkpoints.beside(keys)
    one.add([("run_1", 1, "1" * 64)], NOW)
    two.add([("run_1", 2, "2" * 64)], NOW)
    assert one.add([("run_1", 2, "2" * 64)], NOW) == 0

    (newest,) = one.streams()
    assert (newest.seq, newest.hash) == (2, "2" * 64)
