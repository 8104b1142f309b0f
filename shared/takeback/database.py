"""PostgreSQL: each service its own schema, role and migrations, and the connections that they run on (design.md, Services).

A service is found by its entry point in the group ``takeback.migrations``: a package with ``versions/`` (Alembic). Nobody
may touch another's tables: a role is granted its own schema only, by its own migrations.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy import URL, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

if TYPE_CHECKING:
    from sqlalchemy import Connection

MIGRATIONS = "takeback.migrations"
VERSION_TABLE = "alembic_version"
_MIGRATION_LOCK = 0x7AEBAC  # any number, the same for all


class MigrationFailed(Exception):
    """A migration did not go through; that service's schema is as it was before this run, the ones named before it are done."""


def services() -> dict[str, str]:
    """The services that keep a schema, each with the package of its migrations."""
    return {point.name: point.value for point in sorted(entry_points(group=MIGRATIONS), key=lambda point: point.name)}


def role_of(service: str) -> str:
    """The database role that *service* runs as."""
    return f"takeback_{service}"


def service_url(admin_url: str, service: str, environ: Mapping[str, str] = os.environ) -> str:
    """*admin_url* as *service* uses it: its role, and the password of ``TAKEBACK_<SERVICE>_PASSWORD`` where one is given."""
    url = make_url(admin_url).set(username=role_of(service))
    password = environ.get(f"TAKEBACK_{service.upper()}_PASSWORD")
    url = URL.create(url.drivername, url.username, password, url.host, url.port, url.database, url.query)
    return url.render_as_string(hide_password=False)


async def migrate(admin_url: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Bring every service's schema to its newest version; answers the services, in order.

    *admin_url* names a role that may create roles and schemas. Safe to run by several at once (a lock orders them) and
    again. Raises `MigrationFailed` naming the service, and asyncpg's or the system's errors when the server cannot be reached.
    """
    found = services()
    engine = create_async_engine(_sqlalchemy_url(admin_url), poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            await connection.execute(text("select pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
            await connection.commit()
            try:
                for service, package in found.items():
                    try:
                        await _prepare(connection, service, environ)
                        await connection.run_sync(_upgrade, service, package)
                        await connection.commit()
                    except Exception as error:
                        await connection.rollback()
                        raise MigrationFailed(f"The schema of {service} was left as it was: {error}") from error
            finally:
                await connection.execute(text("select pg_advisory_unlock(:key)"), {"key": _MIGRATION_LOCK})
                await connection.commit()
    finally:
        await engine.dispose()
    return list(found)


def execute_script(connection: Connection, sql: str) -> None:
    """Run *sql*, several statements and dollar quotes as they are, in the transaction of *connection* (for migrations)."""
    connection.execute(text("select 1"))  # the adapter opens its transaction with its first statement
    driver: Any = connection.connection.dbapi_connection
    driver.run_async(lambda raw: raw.execute(sql))


async def connect_pool(
    url: str, schema: str, *, minimum: int = 1, maximum: int = 10, command_timeout: float = 30
) -> asyncpg.Pool:
    """Connections to *schema*; *command_timeout* in seconds for each statement. Close it with ``await pool.close()``."""
    return await asyncpg.create_pool(
        driver_url(url),
        min_size=minimum,
        max_size=maximum,
        command_timeout=command_timeout,
        server_settings=session_settings(schema),
        reset=_as_it_is,
    )


async def _as_it_is(_: object) -> None:
    """What the pool asks of a session between two uses, once what was open is rolled back: nothing.

    Ours set nothing beyond a transaction. Asking the server to forget costs each use a round trip more.
    """


def session_settings(schema: str) -> dict[str, str]:
    """What every session of a service is set to: its own schema, UTC, no transaction that is held while somebody thinks."""
    return {
        "search_path": schema,
        "timezone": "UTC",
        "application_name": f"takeback {schema}",
        "idle_in_transaction_session_timeout": "30s",
        "lock_timeout": "5s",
    }


def engine(url: str, schema: str) -> AsyncEngine:
    """A SQLAlchemy engine on *schema*, for everything that is not the hot path. Close it with ``await engine.dispose()``."""
    return create_async_engine(_sqlalchemy_url(url), connect_args={"server_settings": session_settings(schema)})


def driver_url(url: str) -> str:
    """*url* as asyncpg reads it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _sqlalchemy_url(url: str) -> URL:
    return make_url(url).set(drivername="postgresql+asyncpg")


async def _prepare(connection: Any, service: str, environ: Mapping[str, str]) -> None:
    role = role_of(service)
    exists = await connection.scalar(text("select 1 from pg_roles where rolname = :role"), {"role": role})
    if not exists:
        # Roles belong to the whole cluster: another database's migration may make it in the same moment.
        await connection.execute(
            text(
                f"do $$ begin create role {role} login; "
                "exception when duplicate_object or unique_violation then null; end $$"
            )
        )
    password = environ.get(f"TAKEBACK_{service.upper()}_PASSWORD")
    if password:
        literal = await connection.scalar(text("select quote_literal(cast(:password as text))"), {"password": password})
        await connection.exec_driver_sql(f"alter role {role} login password {literal}")
    await connection.execute(text(f"create schema if not exists {service}"))
    await connection.execute(text(f"set local search_path to {service}"))


def _upgrade(connection: Connection, service: str, package: str) -> None:
    # Alembic takes a third of a second to import: only migrating pays for it.
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.environment import EnvironmentContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    location = str(files(package))
    config = Config()
    config.set_main_option("script_location", location.replace("%", "%%"))
    script = ScriptDirectory(location, version_locations=[f"{location}/versions"])

    def upgrade(revision: Any, _context: Any) -> Any:
        return script._upgrade_revs("head", revision)

    with EnvironmentContext(config, script, fn=upgrade) as environment:
        environment.configure(
            connection=connection, version_table=VERSION_TABLE, version_table_schema=service, transactional_ddl=False
        )
        environment.run_migrations()
