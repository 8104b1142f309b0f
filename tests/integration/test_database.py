"""Migrations: a schema and a role for each service, least privileges, quick, and safe to run by several at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, make_url

from recorder.tables import metadata
from takeback.database import MigrationFailed, connect_pool, engine, migrate, service_url, services


async def test_every_service_gets_its_schema_and_a_role_that_sees_no_other(empty_postgres_url: str) -> None:
    """Nobody reads another's tables."""
    began = time.process_time()
    done = await migrate(empty_postgres_url)
    seconds = time.process_time() - began  # of its own: how long others take says how busy the machine is

    assert done == list(services()) == ["notifier", "planner", "recorder"]
    assert seconds < 2
    for service in done:
        pool = await connect_pool(service_url(empty_postgres_url, service), service)
        assert await pool.fetchval("select current_user") == f"takeback_{service}"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await pool.execute("create table mine (a text)")
        for other in set(done) - {service}:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await pool.execute(f"select * from {other}.alembic_version")
        await pool.close()


async def test_several_may_migrate_at_once_and_again(empty_postgres_url: str) -> None:
    """Every replica's start may run it."""
    await asyncio.gather(*(migrate(empty_postgres_url) for _ in range(3)))
    connection = await asyncpg.connect(empty_postgres_url)
    versions = [await connection.fetchval(f"select count(*) from {service}.alembic_version") for service in services()]
    await connection.close()

    assert all(count <= 1 for count in versions)


async def test_a_role_gets_the_password_that_its_variable_names(empty_postgres_url: str) -> None:
    """Deployed, each service has its own password."""
    environ = {"TAKEBACK_RECORDER_PASSWORD": "it's %s secret"}
    await migrate(empty_postgres_url, environ)

    assert make_url(service_url(empty_postgres_url, "recorder", environ)).password == "it's %s secret"
    connection = await asyncpg.connect(empty_postgres_url)
    hashed = await connection.fetchval("select rolpassword from pg_authid where rolname = 'takeback_recorder'")
    await connection.execute("alter role takeback_recorder password null")
    await connection.close()
    assert hashed is not None


async def test_a_failed_migration_names_its_service_and_leaves_it_as_it_was(empty_postgres_url: str) -> None:
    """Errors tell what was and was not changed."""
    connection = await asyncpg.connect(empty_postgres_url)
    await connection.execute("create schema recorder; create table recorder.outbox (id text)")
    with pytest.raises(MigrationFailed, match="recorder"):
        await migrate(empty_postgres_url)
    tables = await connection.fetch("select tablename from pg_tables where schemaname = 'recorder'")
    await connection.close()

    assert [row["tablename"] for row in tables] == ["outbox"]


async def test_the_recorders_tables_are_what_its_migrations_make(postgres_url: str) -> None:
    """`tables.py` and the migrations do not drift apart."""

    def differences(connection: Connection) -> list[Any]:
        options = {
            "include_schemas": True,
            "include_name": lambda name, kind, _: kind != "schema" or name == "recorder",
            "include_object": lambda _, name, kind, *__: (
                not (kind == "table" and (name.startswith("records_") or name == "alembic_version"))
            ),
            "compare_type": True,
            "compare_server_default": False,
        }
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    database = engine(postgres_url, "public")
    async with database.connect() as connection:
        found = await connection.run_sync(differences)
    await database.dispose()

    assert found == []
