"""Each of the three bus users may do what the contract says and no more, embedded and as deployed (N6)."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError

from takeback import bus
from takeback.embedded.binaries import nats_server as program
from takeback.embedded.process import listens
from tests.ports import own_port
from tests.servers import NatsServer

DEPLOYED = Path(__file__).parents[2] / "deploy/nats/nats.conf"


@dataclass(frozen=True)
class Bus:
    url: str
    subscriber_url: str
    tools_url: str


@pytest.fixture(params=["embedded", "deployed"])
def users(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bus]:
    if request.param == "embedded":
        server: NatsServer = request.getfixturevalue("nats_server")
        yield Bus(server.url, server.subscriber_url, server.tools_url)
        return
    port = own_port()
    config = tmp_path / "nats.conf"
    config.write_text(DEPLOYED.read_text().replace("/data", str(tmp_path / "store")))
    command = [program(), "-c", config, "-a", "127.0.0.1", "-p", str(port), "-m", str(own_port())]
    environ = {f"NATS_{name}PASSWORD": "secret" for name in ("", "SUBSCRIBER_", "TOOLS_")}
    with subprocess.Popen(command, env=environ) as process:
        while not listens(port, greeting=b"INFO "):
            assert process.poll() is None
            time.sleep(0.002)
        yield Bus(*(f"nats://{user}:secret@127.0.0.1:{port}" for user in ("services", "subscriber", "tools")))
        process.terminate()


async def test_a_subscriber_only_hears_and_a_tool_server_only_answers(users: Bus) -> None:
    """N6: `nats` may only subscribe to `takeback.>`, `natsTools` serves `tools.>` and answers."""
    refused: asyncio.Queue[str] = asyncio.Queue()

    async def on_error(error: Exception) -> None:
        refused.put_nowait(str(error))

    async def serve_tool(message: Msg) -> None:
        await message.respond(b"done")

    owner = await nats.connect(users.url)
    subscriber = await nats.connect(users.subscriber_url, error_cb=on_error)
    tools = await nats.connect(users.tools_url, error_cb=on_error)
    heard = await subscriber.subscribe("takeback.>")
    await bus.settle(subscriber)
    await owner.publish("takeback.cmp_1.run.opened", b"{}")
    await bus.settle(owner)
    assert (await heard.next_msg(timeout=5)).data == b"{}"
    await tools.subscribe("tools.table.call", queue="table", cb=serve_tool)
    await bus.settle(tools)
    assert (await owner.request("tools.table.call", b"", timeout=5)).data == b"done"
    assert refused.empty()

    await subscriber.publish("takeback.cmp_1.run.opened", b"forged")
    assert "permissions violation for publish" in await refused.get()
    await subscriber.subscribe("tools.>")
    assert "permissions violation for subscription" in await refused.get()
    await tools.publish("takeback.cmp_1.run.opened", b"forged")
    assert "permissions violation for publish" in await refused.get()
    with pytest.raises(NatsTimeoutError):
        await heard.next_msg(timeout=0.05)
    for client in (owner, subscriber, tools):
        await client.close()


async def test_who_has_no_password_gets_in_nowhere(users: Bus) -> None:
    stranger = users.url.replace("services:", "services:not")
    with pytest.raises(nats.errors.Error):
        await nats.connect(stranger, allow_reconnect=False, connect_timeout=2)
