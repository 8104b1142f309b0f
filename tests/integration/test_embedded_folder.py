"""What `takeback serve` keeps in its folder, and how it refuses what it cannot use."""

import os
from pathlib import Path

import pytest

from takeback.data_folder import DataFolder, FolderInUse, NothingRuns, Urls
from takeback.door import PortInUse, bind
from takeback.keys import ensure_keys

URLS = Urls("http://127.0.0.1:1", "nats://a", "nats://b", "postgresql://c", "redis://d")


def test_keys_are_made_once_and_only_their_owner_reads_the_private_ones(tmp_path: Path) -> None:
    ensure_keys(tmp_path / "keys")
    first = {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    ensure_keys(tmp_path / "keys")
    assert {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()} == first
    assert set(first) == {"master.key", "signing.pem", "signing_public.pem", "token.pem", "token_public.pem"}
    assert len(first["master.key"]) == 32
    for name in ("master.key", "signing.pem", "token.pem"):
        assert (tmp_path / "keys" / name).stat().st_mode & 0o077 == 0


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with DataFolder(tmp_path).held():
        with pytest.raises(FolderInUse, match=rf"process {os.getpid()}.*--data"), DataFolder(tmp_path).held():
            pass
        with pytest.raises(FolderInUse), DataFolder(tmp_path).held():
            pass
    with DataFolder(tmp_path).held():
        pass


def test_the_urls_of_a_run_that_was_killed_do_not_count(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.write_urls(URLS, {})
    assert folder.urls() is None
    with folder.held():
        assert folder.urls() is None
        folder.write_urls(URLS, {})
        assert folder.urls() == URLS
        assert (tmp_path / "urls.json").stat().st_mode & 0o077 == 0
    assert not (tmp_path / "urls.json").exists()


def test_a_commands_settings_come_from_the_environment_or_from_the_running_stack(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path, {})
    with pytest.raises(NothingRuns, match=r"TAKEBACK_POSTGRES_URL is not set. Start it"):
        folder.environ()
    with folder.held():
        folder.write_urls(URLS, {"TAKEBACK_POSTGRES_URL": "postgresql://c"})
        assert folder.environ()["TAKEBACK_POSTGRES_URL"] == "postgresql://c"
    named = DataFolder(tmp_path, {"TAKEBACK_POSTGRES_URL": "postgresql://e", "TAKEBACK_KEYS_DIR": "/k"}).environ()
    assert (named["TAKEBACK_POSTGRES_URL"], named["TAKEBACK_KEYS_DIR"]) == ("postgresql://e", "/k")


def test_a_token_without_a_key_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NothingRuns, match="takeback serve --data"):
        DataFolder(tmp_path, {}).token("ada")


def test_a_port_in_use_is_told_and_the_default_port_gives_way() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"Port {port} .* Nothing was started"):
            bind("127.0.0.1", port)
    with bind("127.0.0.1", None) as first, bind("127.0.0.1", None) as second:
        assert first.getsockname()[1] != second.getsockname()[1]
