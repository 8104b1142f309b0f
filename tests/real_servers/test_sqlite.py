"""mcp-server-sqlite behind the shipped manifest, through the recorder (E3, G8)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.real_servers.bench import Bench
from tests.real_servers.conftest import Opened

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCHEMA = """
drop table if exists parts; drop table if exists fresh; drop table if exists watched; drop table if exists seen;
create table parts (id integer primary key, name text unique, price real, seal blob, stock integer default 5);
create table seen (name text);
create table watched (name text);
create trigger looked after delete on watched begin insert into seen values (old.name); end;
insert into watched values ('one');
"""
ROWS = [
    (1, "Ann's", 0.1, b"\x00\xff", 9007199254740993),
    (2, 'where ; "x" -is', None, b"", 0),
    (7, "zwei ✓\nlines", -1e300, None, None),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sqlite")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bench(opened: Opened, place: Path) -> Bench:
    return await opened("sqlite", place)


@pytest.fixture
def database(bench: Bench, place: Path) -> Iterator[sqlite3.Connection]:
    """The database as its file has it, in known state."""
    connection = sqlite3.connect(place / "lab.db", isolation_level=None)
    connection.executescript(SCHEMA)
    connection.executemany("insert into parts values (?, ?, ?, ?, ?)", ROWS)
    yield connection
    connection.close()


def _rows(database: sqlite3.Connection, table: str = "parts") -> list[Any]:
    return database.execute(f"select * from {table} order by rowid").fetchall()


STATEMENTS = {
    "insert": "INSERT INTO parts (name, price) VALUES ('it''s; new', 1.5), ('RETURNED', 2)",
    "insert from": "insert into parts (name) select name || '!' from parts where id < 5;",
    "update": "UPDATE parts SET name = 'no WHERE; here', stock = stock - 1, seal = x'01' WHERE id = 2",
    "update all": "UPDATE Parts SET price = 5",
    "delete": "DELETE FROM parts WHERE name LIKE '%''s' OR id = 7",
    "delete all": "delete from parts",
}


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_the_rows_of_a_statement_come_back_exactly_once(
    bench: Bench, database: sqlite3.Connection, statement: str
) -> None:
    """E3: every type of value, several rows, a WHERE that is none."""
    entry = await bench.alone("write_query", query=STATEMENTS[statement])
    assert _rows(database) != ROWS
    assert await bench.back(entry) == ["reverted"]
    assert _rows(database) == ROWS
    assert await bench.back(entry) == ["already_reverted"]
    assert _rows(database) == ROWS


@pytest.mark.parametrize(
    ("statement", "theirs"),
    [
        ("insert", "update parts set stock = 4 where id = 8"),
        ("update", "update parts set price = 4 where id = 2"),
        ("delete", "insert into parts (id, name) values (1, 'theirs')"),
    ],
)
async def test_what_somebody_else_did_to_such_a_row_is_a_conflict_and_survives(
    bench: Bench, database: sqlite3.Connection, statement: str, theirs: str
) -> None:
    """G8."""
    entry = await bench.alone("write_query", query=STATEMENTS[statement])
    database.execute(theirs)
    stood = _rows(database)
    assert await bench.back(entry) == ["conflict"]
    assert _rows(database) == stood


async def test_what_somebody_else_did_to_other_rows_is_no_conflict_and_survives(
    bench: Bench, database: sqlite3.Connection
) -> None:
    """G8: the version is that of the changed row alone."""
    entry = await bench.alone("write_query", query=STATEMENTS["update"])
    database.execute("update parts set price = 4 where id = 1")
    database.execute("insert into parts (id, name) values (99, 'theirs')")
    assert await bench.back(entry) == ["reverted"]
    assert _rows(database) == [(*ROWS[0][:2], 4.0, *ROWS[0][3:]), *ROWS[1:], (99, "theirs", None, None, 5)]


async def test_a_new_table_comes_back_once_its_rows_have(bench: Bench, database: sqlite3.Connection) -> None:
    """E3: create_table; while rows stand in it, whoever wrote them, the plan shows a conflict and nothing is dropped."""
    made = await bench.alone("create_table", query="CREATE TABLE fresh (name TEXT)")
    filled = await bench.call("write_query", query="INSERT INTO fresh VALUES ('a'), ('b')")
    changed = await bench.call("write_query", query="UPDATE fresh SET name = 'c' WHERE name = 'b'")
    assert await bench.back(made, filled, changed) == ["conflict", "reverted", "reverted"]
    assert await bench.back(made) == ["reverted"]
    assert database.execute("select name from sqlite_master where name = 'fresh'").fetchall() == []
    again = await bench.alone("create_table", query="CREATE TABLE fresh (name TEXT)")
    database.execute("insert into fresh values ('theirs')")
    assert await bench.back(again) == ["conflict"]
    assert _rows(database, "fresh") == [("theirs",)]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("DROP TABLE parts", "only a plain INSERT, UPDATE or DELETE"),
        ("INSERT OR REPLACE INTO parts (id, name) VALUES (1, 'x')", "only a plain INSERT, UPDATE or DELETE"),
        ("INSERT INTO parts (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET name = 'x'", "only a plain INSERT"),
        ("UPDATE parts SET name = 'x' FROM seen WHERE parts.name = seen.name", "read"),
        ("DELETE FROM parts WHERE id = 1 -- comment", "only a plain INSERT, UPDATE or DELETE"),
        ("DELETE FROM parts WHERE random() > 0", "only a plain INSERT, UPDATE or DELETE"),
        ("DELETE FROM main.parts", "only a plain INSERT, UPDATE or DELETE"),
        ("DELETE FROM watched", "the table has triggers"),
    ],
)
async def test_a_statement_whose_rows_cannot_be_known_is_asked_about_and_says_why(
    bench: Bench, database: sqlite3.Connection, query: str, reason: str
) -> None:
    """J4, J8: nothing was sent."""
    entry = await bench.asked("write_query", query=query)
    assert any(reason in why for why in [*await bench.asked_why(), str(entry["undo"]["why"])])
    assert (_rows(database), _rows(database, "watched")) == (ROWS, [("one",)])


async def test_rows_of_which_it_cannot_be_told_that_they_are_the_calls_own_have_no_way_back(
    bench: Bench, database: sqlite3.Connection
) -> None:
    """J8: an INSERT that fills a gap. It is unknown, not guessed."""
    entry = await bench.alone("write_query", query="INSERT INTO parts (id, name) VALUES (3, 'gap')")
    undo = (await bench.entry(entry))["undo"]
    assert undo["kind"] == "unknown"
    assert "which rows it made is not known" in undo["why"]
    plan = await bench.plan(entry)
    assert plan["steps"] == []
    assert entry in str(plan["unresolved"]) + str(plan["notReversible"])


async def test_a_statement_that_changes_a_rows_own_key_has_no_way_back(
    bench: Bench, database: sqlite3.Connection
) -> None:
    """J8."""
    entry = await bench.alone("write_query", query="UPDATE parts SET id = 70 WHERE id = 7")
    undo = (await bench.entry(entry))["undo"]
    assert undo["kind"] == "none"
    assert "the row's own key" in undo["why"]


async def test_an_error_in_prose_is_a_failure_and_an_insight_is_asked_about(
    bench: Bench, database: sqlite3.Connection
) -> None:
    """J2: the server says isError of nothing."""
    failed = await bench.ask("write_query", query="INSERT INTO parts (name) VALUES ('Ann''s')")
    assert (failed.status_code, failed.json()["title"]) == (502, "tool failed")
    entry = await bench.asked("append_insight", insight="parts are dear")
    assert "only be added to" in entry["undo"]["why"]
