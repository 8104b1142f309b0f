"""`takeback manifest check` by itself; beside a server it is the same check as at registering (integration/manifests)."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from recorder.manifest_command import app
from tests.servers_lab import pantry, wiki


def check(folder: Path, text: str, *options: str) -> tuple[int, str]:
    file = folder / "m.yaml"
    file.write_text(text)
    done = CliRunner().invoke(app, ["check", str(file), *options])
    return done.exit_code, done.output.replace(str(file), "m.yaml")


@pytest.mark.parametrize("text", [pantry.MANIFEST, wiki.MANIFEST])
def test_a_manifest_in_order_is_said_to_be(tmp_path: Path, text: str) -> None:
    """J15."""
    code, output = check(tmp_path, text)
    assert code == 0
    assert "kinds of records" in output


def test_each_finding_names_the_file_its_line_and_the_reason(tmp_path: Path) -> None:
    """J15."""
    broken = wiki.MANIFEST.replace("record: page, keys: {name", "record: page, keys: {nam")
    code, output = check(tmp_path, broken)
    lines = [number for number, line in enumerate(broken.splitlines(), 1) if "keys: {nam:" in line]
    assert code == 1
    assert f"m.yaml:{lines[0]}: operations.get_page.uses.0.keys: the keys of page are name" in output


def test_an_http_manifest_is_held_against_its_own_operations(tmp_path: Path) -> None:
    code, output = check(tmp_path, wiki.MANIFEST.replace("call: delete_page", "call: remove_page"))
    assert code == 1
    assert "the server has no remove_page" in output


def test_a_file_that_is_not_there_and_a_server_that_is_away_are_no_findings(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["check", str(tmp_path / "none.yaml")]).exit_code == 2
    code, output = check(tmp_path, pantry.MANIFEST, "--server", "http://127.0.0.1:1/mcp")
    assert code == 2
    assert "was not asked" in output
