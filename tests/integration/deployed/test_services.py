"""What docker-compose.yml says, running: every service a process under its own command, environment and database user."""

import asyncio
import subprocess
import sys

import asyncpg
import httpx
import pytest

from examples.client import Refused
from examples.deal.example import OWNER
from tests.deployment import BIN, TAKEBACK
from tests.integration.deployed.conftest import Deployed

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.parametrize("service", TAKEBACK)
async def test_each_container_is_healthy_by_the_images_own_check(deployed: Deployed, service: str) -> None:
    """Issue 2: healthcheck."""
    said = deployed.deployment.compose.services[service]
    check = deployed.deployment.dockerfile.healthcheck(str(said.target))
    assert check is not None
    port = str(deployed.deployment.port(service, 8420))
    command = [word.replace("8420", port) for word in check]
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, *command[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


async def test_nobody_reads_anothers_tables(deployed: Deployed) -> None:
    """Design, Services: each its own schema and role; the planner's and the notifier's users see nothing of the recorder's."""
    owner = await asyncpg.connect(deployed.deployment.postgres_url)
    tables = await owner.fetch(
        "select schemaname as schema, tablename as name from pg_tables where schemaname = any($1)",
        ["recorder", "planner", "notifier"],
    )
    await owner.close()
    assert len([table for table in tables if table["schema"] == "recorder"]) > 10
    for service in ("planner", "notifier", "recorder-1"):
        url = deployed.deployment.environment(service)["TAKEBACK_POSTGRES_URL"]
        connection = await asyncpg.connect(url)
        for schema, name in tables:
            if schema != deployed.deployment.compose.services[service].target:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.fetch(f"select * from {schema}.{name} limit 1")
        await connection.close()
        user, _, rest = url.rpartition("@")
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(f"{user}x@{rest}")


async def test_private_keys_are_the_recorders_alone(deployed: Deployed) -> None:
    """Design: only recorders hold private keys and unseal; their checkpoints stand outside the database (J13)."""
    at = deployed.deployment.mounted
    assert at("planner", "/public-keys") == at("notifier", "/public-keys")
    seen = [path.read_bytes() for service in ("planner", "notifier") for path in at(service, "/public-keys").iterdir()]
    assert len(seen) == 4
    assert not [key for key in seen if b"PRIVATE" in key]
    assert (at("recorder-1", "/data/keys") / "master.key").exists()
    assert (at("recorder-2", "/data/checkpoints") / "heads.jsonl").exists()


async def test_a_tool_server_that_would_be_started_as_a_command_is_refused(deployed: Deployed) -> None:
    """Contract: `command` is 403 unless it was allowed, and no container allows it."""
    owner = await deployed.stage.seat(OWNER)
    body = {"transport": "mcp", "command": "sh", "args": ["-c", "true"], "env": {}}
    with pytest.raises(Refused) as refused:
        await owner.put(f"/v1/campaigns/{deployed.stage.campaign('deal')}/servers/shell", body)
    assert refused.value.status == 403


async def test_the_console_is_the_edges_first_page_and_asks_the_api_behind_it(deployed: Deployed) -> None:
    """U2: the notifier's pages reach the other services through the edge, as compose tells them."""
    url = deployed.deployment.url("edge", 8080)
    token = deployed.stage._installation.token(OWNER)
    async with httpx.AsyncClient(base_url=url, follow_redirects=True, headers={"Origin": url}) as browser:
        assert (await browser.get("/")).url.path == "/console/sign-in"
        page = await browser.post("/console/sign-in/token", data={"token": token})
        assert page.status_code == 200
        assert "Acme sales" in (await browser.get("/")).text


async def test_the_commands_of_the_page_work_where_it_says(deployed: Deployed) -> None:
    """docs/deployment.md: fsck in a recorder's container, each rebuild in its own; `token` where the keys are."""

    async def run(service: str, *command: str) -> None:
        process = await asyncio.create_subprocess_exec(
            BIN / "takeback", *command, env=deployed.deployment.environment(service),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode == 0, (service, command, said.decode())

    await asyncio.gather(
        run("recorder-1", "fsck"),
        run("planner", "rebuild", "planner"),
        run("notifier", "rebuild", "notifier"),
        run("migrate", "token", "gm"),
        run("migrate", "migrate"),
    )
