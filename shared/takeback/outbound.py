"""Requests to addresses that a person has typed in: never to this machine, its network or the cloud's metadata (SSRF).

A name is resolved once, each of its addresses is checked, and the connection goes to the address that was checked, so a name
that answers differently the second time gains nothing. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

import httpx


class Forbidden(httpx.TransportError):
    """The address is this machine's or its network's. Nothing was sent."""


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends to public addresses only; *allow_private* lifts that, for tests and closed networks."""

    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private
        self._inner = httpx.AsyncHTTPTransport(retries=0)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises `Forbidden`, and httpx's own errors."""
        if not self._allow_private:
            host = request.url.host
            address = await _public_address(host, request.url.port or (443 if request.url.scheme == "https" else 80))
            request.extensions = {**request.extensions, "sni_hostname": host}
            request.url = request.url.copy_with(host=address)  # the Host header keeps the name
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close what is open."""
        await self._inner.aclose()


def guarded_client(*, allow_private: bool = False, timeout_seconds: float = 10.0) -> httpx.AsyncClient:
    """A client over `GuardedTransport`: no redirects, no proxies, nothing from the environment."""
    return httpx.AsyncClient(
        transport=GuardedTransport(allow_private=allow_private),
        timeout=timeout_seconds,
        follow_redirects=False,
        trust_env=False,
    )


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


async def _public_address(host: str, port: int) -> str:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpx.ConnectError(f"{host} cannot be resolved: {error}") from error
    addresses = [str(item[4][0]) for item in found]
    for address in addresses:
        if not _is_public(address):
            raise Forbidden(f"{host} is {address}, which is no public address. Nothing was sent.")
    return addresses[0]


def _is_public(address: str) -> bool:
    number = ipaddress.ip_address(address.split("%", 1)[0])
    mapped = getattr(number, "ipv4_mapped", None) or getattr(number, "sixtofour", None)
    return (mapped or number).is_global and not number.is_multicast
