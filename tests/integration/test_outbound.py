"""What a person has typed in as an address leads to the public internet only (N7)."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest

from takeback.outbound import Forbidden, GuardedTransport, guarded_client, is_public


@pytest.fixture
async def receiver() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server of this machine: its port, and what it was sent."""
    heard: list[bytes] = []

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


class Names:
    """A resolver that answers what it is told to, one answer after the other."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return list(self.answers.pop(0))


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1%eth0",
     "fd00::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "255.255.255.255"],
)  # fmt: skip
def test_an_address_of_this_machine_or_its_network_is_not_public_however_it_is_written(address: str) -> None:
    """N7."""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433"])
async def test_nothing_is_sent_to_this_machine(receiver: tuple[int, list[bytes]], host: str) -> None:
    """N7: the real resolver."""
    port, heard = receiver
    async with guarded_client() as client:
        with pytest.raises(httpx.TransportError):
            await client.post(f"http://{host}:{port}/", content=b"secret")
    assert heard == []


async def test_one_private_address_among_public_ones_is_enough_to_refuse(receiver: tuple[int, list[bytes]]) -> None:
    """N7."""
    async with guarded_client(resolve=Names(["8.8.8.8", "127.0.0.1"])) as client:
        with pytest.raises(Forbidden):
            await client.get(f"http://both.example:{receiver[0]}/")
    assert receiver[1] == []


async def test_a_name_that_answers_differently_the_second_time_gains_nothing(
    receiver: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N7, DNS rebinding: asked once a connection, and the connection goes to the very address that was checked."""
    port, heard = receiver
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    monkeypatch.setattr("takeback.outbound.is_public", lambda address: address == "127.0.0.1")
    async with guarded_client(resolve=names) as client:
        answer = await client.get(f"http://rebinding.example:{port}/hook")
        assert (answer.status_code, names.asked) == (200, 1)
        assert b"Host: rebinding.example" in heard[0]
        with pytest.raises(Forbidden):
            await client.get(f"http://rebinding.example:{port}/hook")
    assert len(heard) == 1


async def test_a_closed_network_may_lift_the_guard(receiver: tuple[int, list[bytes]]) -> None:
    """N7."""
    async with httpx.AsyncClient(transport=GuardedTransport(allow_private=True)) as client:
        assert (await client.get(f"http://127.0.0.1:{receiver[0]}/")).status_code == 200
