"""The group writer when the database fails: never a claim without proof, never a caller without an answer (J3)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import asyncpg
import pytest

from recorder.journal import Appended, Journal, JournalReader, JournalUnavailable, NewRecord, Unit
from recorder.journal.fsck import fsck
from takeback.database import connect_pool, service_url
from takeback.ids import new_id
from tests.integration.journal_units import change, journal_on, opened
from tests.servers import Server
from tests.waiting import eventually

WRITER = (
    "select pid from pg_stat_activity "
    "where datname = current_database() and query like '%append_v1%' and pid <> pg_backend_pid()"
)


def mark(text: str) -> Unit:
    return Unit([NewRecord("run_1", "cmp_1", new_id("rec"), "note", text.encode())])


async def until(connection: asyncpg.Connection, question: str) -> object:
    """Wait until *question* has an answer."""
    while not (answer := await connection.fetchval(question)):
        await asyncio.sleep(0.005)
    return answer


class LosesTheAnswer:
    """A connection that breaks once the server has done what it was asked."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    async def fetch(self, *arguments: object, **options: object) -> object:
        await self._connection.fetch(*arguments, **options)
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


async def test_a_writer_killed_while_it_waits_leaves_nothing_and_is_tried_again_by_its_callers(
    postgres_url: str,
) -> None:
    """J3: the session is gone before the answer is given."""
    admin = await asyncpg.connect(postgres_url)
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        blocking = admin.transaction()
        await blocking.start()
        await admin.execute("select from recorder.streams where stream = 'run_1' for update")
        waiting = [asyncio.ensure_future(journal.append(mark(f"{i}"))) for i in range(3)]
        other = await asyncpg.connect(postgres_url)
        pid = await until(
            other, "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%append_v1%'"
        )
        await other.execute("select pg_terminate_backend($1)", pid)
        answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
        await blocking.rollback()
        again = await journal.append(mark("again"))
        records = await JournalReader(pool).records("run_1")
        await other.close()
    await admin.close()

    assert [getattr(answer, "written", "?") for answer in answers] == [False, False, False]
    assert again.records[0].seq == 2
    assert [record.type for record in records] == ["run.opened", "note"]


async def test_a_commit_whose_answer_was_lost_is_found_again_by_its_record_id(postgres_url: str) -> None:
    """J3: what is in the journal was written, and the caller hears so."""
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        session = journal._writer._session
        assert session is not None
        journal._writer._session = replace(session, connection=LosesTheAnswer(session.connection))  # type: ignore[arg-type]
        answers = await asyncio.gather(
            journal.append(change("pending", entry="ent_1", run="run_1", key="k")), journal.append(mark("beside"))
        )
        records = await JournalReader(pool).records("run_1")

    assert [answer.records[0].hash for answer in answers] == [record.hash for record in records[1:]]
    assert answers[0].records[0].label == 1
    assert answers[0].fence == 1


@pytest.mark.parametrize("round_", range(3))
async def test_whatever_moment_the_session_dies_acknowledged_means_written(postgres_url: str, round_: int) -> None:
    """J3: killed at random under load; an acknowledged unit is there, a refused one is not."""
    admin = await asyncpg.connect(postgres_url)
    told: dict[str, bool] = {}
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))

        async def caller(number: int) -> None:
            for step in range(15):
                unit = mark(f"{number} {step}")
                try:
                    told[unit.records[0].id] = isinstance(await journal.append(unit), Appended)
                except JournalUnavailable as error:
                    assert error.written is False
                    told[unit.records[0].id] = False

        callers = [asyncio.ensure_future(caller(i)) for i in range(10)]
        while not all(task.done() for task in callers):
            await asyncio.sleep(0.002 * (round_ + 1))
            await admin.execute(f"select pg_terminate_backend(pid) from ({WRITER}) as writer")
        await asyncio.gather(*callers)
        stored = {record.id for record in await JournalReader(pool).records("run_1")}
        differences = [str(difference) async for difference in fsck(pool)]
    await admin.close()

    assert {id_ for id_, written in told.items() if written} == stored & told.keys()
    assert len(told) == 150
    assert differences == []


async def test_a_database_that_cannot_be_written_refuses_retryably_and_recovers(postgres_url: str) -> None:
    """J3: read-only, as a standby is."""
    admin = await asyncpg.connect(postgres_url)
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        name = await admin.fetchval("select current_database()")
        await admin.execute(f"alter database {name} set default_transaction_read_only = on")
        await admin.execute(f"select pg_terminate_backend(pid) from ({WRITER}) as writer")
        refusals = []
        for _ in range(2):
            with pytest.raises(JournalUnavailable) as caught:
                await journal.append(mark("x"))
            refusals.append(caught.value.written)
        await admin.execute(f"alter database {name} reset default_transaction_read_only")
        await admin.execute(f"select pg_terminate_backend(pid) from ({WRITER}) as writer")
        written = 2
        try:  # on the lost session, unless the writer has noticed by now and made another
            await journal.append(mark("meanwhile"))
            written += 1
        except JournalUnavailable as error:
            assert error.written is False
        again = await journal.append(mark("again"))
        kept = await JournalReader(pool).records("run_1")
    await admin.close()

    assert refusals == [False, False]
    assert again.records[0].seq == len(kept) == written


async def test_a_dead_server_is_told_of_and_written_to_again_once_it_is_back(start_postgres) -> None:  # type: ignore[no-untyped-def]
    """J3: nobody waits for ever; afterwards the rereading tells."""
    server: Server = await start_postgres()
    from takeback.database import migrate  # noqa: PLC0415

    await migrate(server.url)
    async with journal_on(server.url) as (journal, pool):
        await journal.append(opened("run_1"))
        acknowledged = [mark("before")]
        await journal.append(acknowledged[0])
        await server.kill()
        refused = None
        while refused is None:  # the killed server's sessions live on until they notice
            unit = mark("meanwhile")
            try:
                await asyncio.wait_for(journal.append(unit), 30)
                acknowledged.append(unit)
            except JournalUnavailable as error:
                refused = error
        await server.start()
        back = None
        while back is None:
            try:
                back = await journal.append(mark("back"))
            except JournalUnavailable:
                await asyncio.sleep(0.02)
        kept = {record.id for record in await JournalReader(pool).records("run_1")}
        differences = [str(difference) async for difference in fsck(pool)]

    assert {unit.records[0].id for unit in acknowledged} <= kept
    assert refused.written is None or unit.records[0].id not in kept
    assert differences == []


async def test_a_unit_that_the_database_cannot_take_fails_alone(postgres_url: str) -> None:
    """J3: the others of its group are written."""
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("alter table recorder.entries add constraint no_such check (server <> 'spoiled')")
    async with journal_on(postgres_url) as (journal, _):
        await journal.append(opened("run_1"))
        spoiled = change("pending", entry="ent_bad", run="run_1")
        spoiled = spoiled._replace(entries=[spoiled.entries[0]._replace(server="spoiled")])
        answers = await asyncio.gather(
            journal.append(mark("before")),
            journal.append(spoiled),
            journal.append(mark("after")),
            return_exceptions=True,
        )
    await admin.close()

    assert [type(answer) for answer in answers] == [Appended, JournalUnavailable, Appended]


async def test_callers_that_leave_take_nobody_with_them(postgres_url: str) -> None:
    """J3: a cancelled caller's unit is not sent if it still waits; the others are answered."""
    admin = await asyncpg.connect(postgres_url)
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))
        async with admin.transaction():
            await admin.execute("select from recorder.streams where stream = 'run_1' for update")
            first = asyncio.ensure_future(journal.append(mark("sent")))
            other = await asyncpg.connect(postgres_url)
            await until(
                other, "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%append_v1%'"
            )
            queued = [asyncio.ensure_future(journal.append(mark(f"queued {i}"))) for i in range(4)]
            await asyncio.sleep(0)
            first.cancel()
            queued[1].cancel()
            await other.close()
        answers = await asyncio.gather(first, *queued, return_exceptions=True)
        bodies = [record.body for record in await JournalReader(pool).records("run_1")][1:]
    await admin.close()

    assert [isinstance(answer, Appended) for answer in answers] == [False, True, False, True, True]
    assert bodies == [b"sent", b"queued 0", b"queued 2", b"queued 3"]


async def test_a_cancelled_transaction_commits_whole_or_not_at_all(postgres_url: str) -> None:
    """J3: a COMMIT on its way is carried to its end."""
    async with journal_on(postgres_url) as (journal, pool):
        await journal.append(opened("run_1"))

        async def write(number: int) -> None:
            async with journal.transaction() as transaction:
                await transaction.append(mark(f"{number}"))
                await transaction.execute(
                    "insert into members (campaign, sub, role) values ('cmp_1', $1, 'member')", f"{number}"
                )

        for number in range(20):
            task = asyncio.ensure_future(write(number))
            for _ in range(number):
                await asyncio.sleep(0)
                await asyncio.sleep(0.0002)
            task.cancel()
            await asyncio.wait([task])
        bodies = {record.body.decode() for record in (await JournalReader(pool).records("run_1"))[1:]}
        members = {row["sub"] for row in await pool.fetch("select sub from members")}
        await eventually(lambda: pool.get_size() == pool.get_idle_size())  # what is given back is reset first

    assert bodies == members


async def test_stopping_writes_what_waits_and_refuses_what_comes_later(postgres_url: str) -> None:
    """J3."""
    url = service_url(postgres_url, "recorder")
    pool = await connect_pool(url, "recorder")
    journal = Journal(url, pool)
    await journal.start()
    waiting = [asyncio.ensure_future(journal.append(opened(f"run_{i}"))) for i in range(5)]
    await asyncio.sleep(0)
    await journal.stop()
    answers = await asyncio.gather(*waiting)
    with pytest.raises(JournalUnavailable):
        await journal.append(opened("run_9"))
    await pool.close()

    assert len(answers) == 5
