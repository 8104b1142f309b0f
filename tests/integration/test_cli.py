"""The `takeback` command: tokens, migrations, and what it says when it cannot do what was asked."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import nats
import pytest
import structlog
from typer.testing import CliRunner

from takeback import cli
from takeback.auth import Caller, Verifier
from takeback.keys import ensure_keys


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TAKEBACK_POSTGRES_URL", "TAKEBACK_NATS_URL", "TAKEBACK_REDIS_URL", "TAKEBACK_KEYS_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    structlog.reset_defaults()


def takeback(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(("option", "kind"), [([], "human"), (["--agent"], "agent"), (["--service"], "service")])
async def test_a_token_counts_for_whom_it_names_and_as_what(data: Path, option: list[str], kind: str) -> None:
    ensure_keys(data / "keys")
    code, token, _ = takeback("token", "ada", *option, "--data", str(data))
    assert code == 0
    verifier = Verifier(token_key=data / "keys/token_public.pem")
    assert await verifier.caller(f"Bearer {token.strip()}") == Caller("ada", kind)


def test_a_token_is_of_one_kind(data: Path) -> None:
    assert takeback("token", "ada", "--agent", "--service", "--data", str(data))[0] == 2


def test_a_token_of_a_folder_without_keys_says_what_to_do(data: Path) -> None:
    code, out, error = takeback("token", "ada", "--data", str(data))
    assert (code, out) == (1, "")
    assert f"takeback serve --data {data}" in error


def test_one_service_alone_needs_to_know_where_the_servers_are(data: Path) -> None:
    code, _, error = takeback("serve", "planner", "--data", str(data))
    assert code == 1
    assert "TAKEBACK_POSTGRES_URL and TAKEBACK_NATS_URL must say where the servers are" in error


def test_a_service_that_does_not_exist_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKEBACK_POSTGRES_URL", "postgresql://nowhere")
    monkeypatch.setenv("TAKEBACK_NATS_URL", "nats://nowhere")
    code, _, error = takeback("serve", "accountant", "--data", str(data), "--port", "0")
    assert code == 1
    assert "There is no service 'accountant'" in error


def test_settings_that_are_wrong_are_named_without_their_values(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKEBACK_POSTGRES_URL", "postgresql://takeback:hidden@nowhere/takeback")
    monkeypatch.setenv("TAKEBACK_NATS_URL", "nats://services:hidden@nowhere")
    monkeypatch.setenv("TAKEBACK_SWEEP_SECONDS", "often")
    code, _, error = takeback("serve", "planner", "--data", str(data), "--port", "0")
    assert code == 1
    assert "TAKEBACK_SWEEP_SECONDS: Input should be a valid number" in error
    assert "hidden" not in error


def test_migrate_brings_schemas_roles_streams_and_keys_and_may_run_again(
    data: Path, empty_postgres_url: str, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAKEBACK_POSTGRES_URL", empty_postgres_url)
    monkeypatch.setenv("TAKEBACK_NATS_URL", nats_url)
    for _ in range(2):
        assert takeback("migrate", "--data", str(data)) == (
            0,
            "Up to date: notifier, planner, recorder, JetStream\n",
            "",
        )
    assert (data / "keys/master.key").exists()

    async def look() -> None:
        connection = await asyncpg.connect(empty_postgres_url)
        found = await connection.fetch(
            "select nspname from pg_namespace where nspname = any($1)", ["recorder", "planner", "notifier"]
        )
        assert len(found) == 3
        await connection.close()
        client = await nats.connect(nats_url)
        assert (await client.jetstream().stream_info("TAKEBACK")).config.subjects == ["takeback.>"]
        await client.close()

    cli.run(look())


def test_a_command_without_servers_says_how_to_name_them(data: Path) -> None:
    for command in ("migrate", "rebuild"):
        code, _, error = takeback(command, *(["planner"] if command == "rebuild" else []), "--data", str(data))
        assert code == 1
        assert "TAKEBACK_POSTGRES_URL is not set" in error


def test_the_help_names_every_command_beside_what_it_does(data: Path) -> None:
    _, told, _ = takeback("--help")
    for command in ("serve", "fsck", "manifest", "verify"):
        assert any(line.strip("│ ").startswith(f"{command} ") for line in told.splitlines()), told


def test_what_cannot_be_rebuilt_is_refused_with_the_choices(data: Path) -> None:
    code, _, error = takeback("rebuild", "recorder", "--data", str(data))
    assert code == 2
    assert "planner" in error


def test_asking_for_a_token_imports_no_service_and_no_server_library() -> None:
    """The command answers at once: only what it needs is loaded."""
    script = (
        "import sys; sys.argv = ['takeback', 'token', '--help']\n"
        "from takeback.cli import app\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        "heavy = {'recorder', 'planner', 'notifier', 'examples', 'sqlalchemy', 'fastapi', 'nats'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
