"""Requests to addresses that a person has typed in: never to this machine, its network or the cloud's metadata (SSRF).

A name is resolved once, each of its addresses is checked, and the connection goes to an address that was checked, so a name
that answers differently the second time gains nothing. Redirects are not followed. A connection that is kept belongs to the
name that it was opened for.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any

import httpcore
import httpx

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""All addresses of a host; raises OSError when it has none."""
_IPV4_INSIDE = [ipaddress.IPv6Network(net) for net in ("64:ff9b::/96", "::/96")]


class Forbidden(httpx.TransportError):
    """The address is this machine's or its network's. Nothing was sent."""


async def addresses_of(host: str, port: int) -> list[str]:
    """What the system's resolver says."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


async def check(host: str, port: int, resolve: Resolve = addresses_of) -> list[str]:
    """The addresses of *host*, all of them public. Raises `Forbidden`, and OSError for a host that has none."""
    addresses = await resolve(host, port)
    for address in addresses:
        if not is_public(address):
            raise Forbidden(f"{host} is {address}, which is no public address. Nothing was sent.")
    return addresses


def is_public(address: str) -> bool:
    """Whether *address* is one of the whole internet's, whichever way an IPv4 address is wrapped up in it."""
    number = ipaddress.ip_address(address.split("%", 1)[0])
    if isinstance(number, ipaddress.IPv6Address):
        if any(number in net for net in _IPV4_INSIDE):
            return is_public(str(ipaddress.IPv4Address(number.packed[-4:])))
        if inner := number.ipv4_mapped or number.sixtofour or (number.teredo and number.teredo[1]):
            return is_public(str(inner))
    return number.is_global and not number.is_multicast


class GuardedTransport(httpx.AsyncHTTPTransport):
    """Sends to public addresses only; *allow_private* lifts that, for tests and closed networks."""

    def __init__(self, *, allow_private: bool = False, resolve: Resolve = addresses_of) -> None:
        super().__init__(verify=_trusted(), retries=0)
        # httpx has no argument for it: the pool that it makes, with a way to connect that looks where it goes.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_trusted(),
            network_backend=None if allow_private else _Guard(resolve),
            max_connections=None,
            max_keepalive_connections=100,
            keepalive_expiry=5.0,
        )


def guarded_client(
    *, allow_private: bool = False, timeout_seconds: float = 10.0, resolve: Resolve = addresses_of
) -> httpx.AsyncClient:
    """A client over `GuardedTransport`: no redirects, no proxies, nothing from the environment."""
    return httpx.AsyncClient(
        transport=GuardedTransport(allow_private=allow_private, resolve=resolve),
        timeout=timeout_seconds,
        follow_redirects=False,
        trust_env=False,
    )


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates of the world's authorities, read once: there are hundreds of them."""
    return httpx.create_ssl_context(trust_env=False)


async def read_text(client: httpx.AsyncClient, url: str, limit_bytes: int) -> str:
    """What *url* answers, as text; raises httpx.HTTPError, an answer of more than *limit_bytes* included."""
    async with client.stream("GET", url) as response:
        if response.status_code != httpx.codes.OK:
            raise httpx.HTTPStatusError(
                f"it answered {response.status_code}", request=response.request, response=response
            )
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > limit_bytes:
                raise httpx.DecodingError(f"it is larger than {limit_bytes} bytes", request=response.request)
        return body.decode(response.encoding or "utf-8", "replace")


class _Guard(httpcore.AsyncNetworkBackend):
    """Connects to the address that it has checked; TLS still asks for the name's certificate."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the interface's own
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await check(host, port, self._resolve)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        for last in addresses[:-1]:
            try:
                return await self._inner.connect_tcp(last, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue  # the host's next address
        return await self._inner.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise Forbidden("A socket of this machine. Nothing was sent.")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
